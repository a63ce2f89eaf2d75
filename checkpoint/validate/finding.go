package validate

import (
	"cmp"
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Severity says how much a finding weighs.
type Severity string

// Severities.
const (
	// Error says that an ADD fails, or that the runtime does not read the file.
	Error Severity = "error"
	// Warning says that it works, but probably not as it was meant.
	Warning Severity = "warning"
	// Note says what a runtime makes of a directory.
	Note Severity = "note"
)

// ConfigFinding is one thing that the report says.
type ConfigFinding struct {
	// File is the file or directory, as it was named.
	File string `json:"file"`
	// Place is the document and the plugin in the file. It is empty for the whole file.
	Place    string   `json:"place,omitempty"`
	Severity Severity `json:"severity"`
	// Message names the key, its value, and what to do.
	Message string `json:"message"`
}

// String returns the finding as one line.
func (f ConfigFinding) String() string {
	parts := []string{f.File}
	if f.Place != "" {
		parts = append(parts, f.Place)
	}
	return strings.Join(append(parts, string(f.Severity), f.Message), ": ")
}

// errorText is the text of a plugin's error.
func errorText(err error) string {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded.Msg
	}
	return err.Error()
}

// compareFindings sorts findings by file and place. Errors come before warnings.
func compareFindings(a, b ConfigFinding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Severity, b.Severity))
}
