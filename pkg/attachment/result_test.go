package attachment

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestAddressesOfAResult(t *testing.T) {
	for result, want := range map[string]string{
		"":     "[]",
		"null": "[]",
		"{":    "[]",
		`{"cniVersion":"1.0.0","ips":[{"address":"10.3.0.5/24","gateway":"10.3.0.1"},{"address":"fd00::5/64"}]}`: "[10.3.0.5 fd00::5]",
		`{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.3.0.5/24"}]}`:                                 "[10.3.0.5]",
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.3.0.5/24"},"ip6":{"ip":"fd00::5/64"}}`:                            "[10.3.0.5 fd00::5]",
		`{"ips":[{"address":"::ffff:10.3.0.5/120"},{"address":"10.3.0.7"},{"address":""}]}`:                      "[10.3.0.5]",
		`{"ips":{"address":"10.3.0.5/24"}}`:                                                                      "[]",
	} {
		if got := fmt.Sprint(ResultAddresses(json.RawMessage(result))); got != want {
			t.Errorf("%s: %s, want %s", result, got, want)
		}
	}
}
