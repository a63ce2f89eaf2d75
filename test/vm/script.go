package vm

import "strings"

// machineScript is what the guest's init sources: shell variables for this boot.
func machineScript(modules, trailer string) string {
	return "MODULES=" + quote(modules) + "\n" +
		"GUEST_HOSTNAME=" + quote(guestHostname) + "\n" +
		"TRAILER=" + quote(trailer) + "\n"
}

// runScript is the shell script that becomes the command.
func runScript(cfg Config) string {
	var b strings.Builder
	for _, pair := range cfg.Env {
		key, value, _ := strings.Cut(pair, "=")
		b.WriteString("export " + key + "=" + quote(value) + "\n")
	}
	b.WriteString("cd " + quote(cfg.Dir) + " || exit 126\n")
	b.WriteString("exec")
	for _, word := range cfg.Command {
		b.WriteString(" " + quote(word))
	}
	b.WriteString("\n")
	return b.String()
}

// quote makes s one word of a shell command.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
