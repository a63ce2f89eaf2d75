package guard

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// removal is a command that only takes a device away: nothing in it brings the device back.
type removal struct {
	// line is the command as a line of the shell.
	line string
	// undo is what brings the device back, as a line of the shell.
	undo string
}

// suggestion is how to write the command line of relink guard instead.
func (r removal) suggestion() string {
	return "relink guard -- sh -c '" + strings.ReplaceAll(r.line+" && "+r.undo, "'", `'\''`) + "'"
}

// removalOf is a pure function: it says whether the command only takes a device away. The usual cause is a shell that
// reads `relink guard -- modprobe -r i40e && modprobe i40e` as two commands. A command that it does not know passes.
func removalOf(command []string) (r removal, ok bool) {
	command = unwrapped(command)
	line, isLine := shellLine(command)
	if !isLine {
		undo := undoOf(command)
		return removal{strings.Join(command, " "), undo}, undo != ""
	}
	r.line = strings.TrimSpace(line)
	for _, simple := range simpleCommands(line) {
		undo := undoOf(unwrapped(simple))
		switch {
		case undo != "":
			r.undo, ok = undo, true
		case slices.Contains(simple, ">") || !slices.Contains(passive, path.Base(simple[0])):
			return r, false
		}
	}
	return r, ok
}

// wrappers are programs that run the command behind them. passive are commands of the shell that bring nothing back.
var (
	wrappers = []string{"sudo", "doas", "env", "nohup", "nice", "ionice", "chrt", "timeout", "setsid", "stdbuf", "busybox", "exec", "command"}
	passive  = []string{"sleep", "true", ":", "set", "cd", "sync", "echo", "date", "logger", "depmod"}
)

// amount is an operand of a wrapper: a time, or a priority. No program has such a name.
var amount = regexp.MustCompile(`^[0-9.]+[smhd]?$`)

// unwrapped returns the command without the wrappers before it, and without variables that are set for it.
func unwrapped(command []string) []string {
	for len(command) > 1 && (slices.Contains(wrappers, path.Base(command[0])) || strings.Contains(command[0], "=") ||
		strings.HasPrefix(command[0], "-") || amount.MatchString(command[0])) {
		if slices.Contains([]string{"-u", "-g"}, command[0]) && len(command) > 2 { // The user and the group of sudo.
			command = command[1:]
		}
		command = command[1:]
	}
	return command
}

// shellLine returns the line that the command gives to a shell.
func shellLine(command []string) (line string, ok bool) {
	if len(command) == 0 || !slices.Contains([]string{"sh", "bash", "dash", "ash", "zsh"}, path.Base(command[0])) {
		return "", false
	}
	for i, word := range command[1:] {
		if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "c") && i+2 < len(command) {
			return command[i+2], true
		}
	}
	return "", false
}

// duplicated is a redirection to another descriptor. redirected is what stands before the file of a redirection.
var (
	duplicated = regexp.MustCompile(`[0-9]*>&[0-9-]`)
	redirected = regexp.MustCompile(`[0-9]*>+`)
)

// simpleCommands splits a line of the shell at its operators. It does not know quotes: a word that it splits wrongly is a
// command that removalOf does not know.
func simpleCommands(line string) (commands [][]string) {
	line = strings.ReplaceAll(duplicated.ReplaceAllString(line, ""), "&>", ">")
	for _, part := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(";&|\n(){}", r) }) {
		if words := strings.Fields(redirected.ReplaceAllString(part, " > ")); len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

// undoOf returns the line that brings back what the simple command takes away. It is "" for a command that takes nothing
// away.
func undoOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	var operands []string
	removes := false
	for _, word := range words[1:] {
		if word == ">" { // What follows is no module.
			break
		}
		switch {
		case !strings.HasPrefix(word, "-"):
			operands = append(operands, word)
		case word == "--remove" || !strings.HasPrefix(word, "--") && strings.Contains(word, "r"):
			removes = true
		}
	}
	file := words[len(words)-1]
	switch program := path.Base(words[0]); {
	case len(operands) > 0 && (program == "rmmod" || program == "modprobe" && removes):
		return "modprobe " + operands[len(operands)-1]
	case program != "tee" && !slices.Contains(words, ">"):
	case path.Base(file) == "unbind":
		return "echo DEVICE > " + path.Join(path.Dir(file), "bind")
	case path.Base(file) == "remove" && strings.HasPrefix(file, "/sys/"):
		return "echo 1 > /sys/bus/pci/rescan"
	}
	return ""
}
