package attachment

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxIfName is the greatest length of a device's name in bytes: IFNAMSIZ less the terminating zero (linux/if.h).
const MaxIfName = 15

// Key identifies an attachment: one interface of one sandbox on one network,
// in the sense of the CNI specification ("attachment"). The runtime chooses ContainerID and IfName, and the pair
// is unique on a node. Network is the name of the configuration.
type Key struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String returns the key for people to read. It is never parsed.
func (k Key) String() string {
	return fmt.Sprintf("%s of %s on %s", k.IfName, k.ContainerID, k.Network)
}

// WithoutNetwork returns what identifies the attachment on its node.
func (k Key) WithoutNetwork() Key {
	k.Network = ""
	return k
}

// SameInterface says that both are one attachment, whatever their networks are called.
func (k Key) SameInterface(other Key) bool { return k.WithoutNetwork() == other.WithoutNetwork() }

// Validate reports the first part of the key that the CNI specification or the kernel does not accept as a
// name. A valid ContainerID and IfName are also safe as names of files.
func (k Key) Validate() error {
	if err := ValidateName(k.Network); err != nil {
		return fmt.Errorf("network %q: %w", k.Network, err)
	}
	if err := ValidateName(k.ContainerID); err != nil {
		return fmt.Errorf("container ID %q: %w", k.ContainerID, err)
	}
	if err := ValidateIfName(k.IfName); err != nil {
		return fmt.Errorf("interface name %q: %w", k.IfName, err)
	}
	if k.IfName[0] == '.' {
		return fmt.Errorf("interface name %q: a name that begins with a dot cannot be remembered", k.IfName)
	}
	return nil
}

// hasSpecForm says that the name has the form of network names and container IDs in the CNI
// specification, 1.1.0, section 1 and section 2 ("CNI_CONTAINERID"). A regular expression would have to be
// compiled whenever a program starts.
func hasSpecForm(name string) bool {
	for i := range len(name) {
		c := name[i]
		letterOrDigit := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letterOrDigit && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return name != ""
}

// ValidateName returns an error unless name can be the name of a network or a container ID by the CNI
// specification, and is short enough for the name of a file.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > 255:
		return fmt.Errorf("is %d characters long, at most 255 are allowed", len(name))
	case !hasSpecForm(name):
		return errors.New("must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'")
	}
	return nil
}

// ValidateIfName returns an error unless the kernel accepts name as a device's name (dev_valid_name in
// net/core/dev.c).
func ValidateIfName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxIfName:
		return fmt.Errorf("has %d characters, the kernel allows %d", len(name), MaxIfName)
	case name == "." || name == "..":
		return errors.New("is no device name")
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	// To the kernel the byte 0xa0 is white space (lib/ctype.c), even as a part of a character.
	case strings.Contains(name, "%") || strings.Contains(name, "\xa0"):
		return errors.New("contains a character that the kernel takes for something else: '%' or byte 0xa0")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return errors.New("contains '/', ':', white space or a control character")
	}
	return nil
}
