package attachment

import "testing"

// The kernel takes a '%' as a format (dev_get_valid_name): "net%d" becomes net0, "100%" is EINVAL.
// It refuses the byte 0xa0 (isspace of lib/ctype.c), which is in the UTF-8 of "à".
func TestValidateIfNameRefusesWhatTheKernelDoesNotTakeAsItIs(t *testing.T) {
	for _, name := range []string{"net%d", "100%", "à"} {
		if ValidateIfName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
