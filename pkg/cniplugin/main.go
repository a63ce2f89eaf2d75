package cniplugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Main is the main function of the plugin with that name. After an error, which it prints as the specification
// wants it, it does not return.
func Main(name string, funcs skel.CNIFuncs, versions version.PluginInfo) {
	err := call(funcs, versions, about(name))
	if err == nil {
		return
	}
	err = addRootHint(err, name, os.Geteuid())
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintf(os.Stderr, "%s: print the error: %v\n", name, printErr)
	}
	os.Exit(1)
}

// call calls the function for the command. Before that it checks what package skel reads of the configuration: the
// messages of skel name Go's types instead of the value.
func call(funcs skel.CNIFuncs, versions version.PluginInfo, about string) *types.Error {
	if command := os.Getenv("CNI_COMMAND"); command == "" || command == "VERSION" {
		return skel.PluginMainFuncsWithError(funcs, versions, about)
	}
	config, err := io.ReadAll(os.Stdin)
	if err != nil {
		return types.NewError(types.ErrIOFailure, "standard input: "+err.Error(), "")
	}
	if err := checkHeader(config, versions.SupportedVersions()); err != nil {
		return withCode(err)
	}
	if err := restoreStdin(config); err != nil {
		return types.NewError(types.ErrIOFailure, err.Error(), "")
	}
	for _, command := range []*func(*skel.CmdArgs) error{&funcs.Add, &funcs.Del, &funcs.Check, &funcs.Status, &funcs.GC} {
		if run := *command; run != nil {
			*command = func(args *skel.CmdArgs) error {
				if err := run(args); err != nil {
					return withCode(err)
				}
				return nil
			}
		}
	}
	return skel.PluginMainFuncsWithError(funcs, versions, about)
}

// restoreStdin makes the configuration the standard input again. Package skel reads nothing else. The pipe blocks: for
// one of os.Pipe, the runtime sets up its poller first.
func restoreStdin(config []byte) error {
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	os.Stdin = os.NewFile(uintptr(pipe[0]), "configuration")
	writer := os.NewFile(uintptr(pipe[1]), "configuration")
	// This waits for the reader. If nobody reads, because the environment is wrong, the program ends all the same.
	go func() {
		_, _ = writer.Write(config)
		_ = writer.Close()
	}()
	return nil
}

// checkHeader reports what is wrong with the name and the version, for every command. A DEL needs them
// too.
func checkHeader(config []byte, supported []string) error {
	var head struct {
		Name       string `json:"name"`
		CNIVersion string `json:"cniVersion"`
	}
	if err := Decode(config, &head); err != nil {
		return err
	}
	if head.Name == "" {
		return ConfigError("name", Missing, "must be the network's name")
	}
	if err := attachment.ValidateName(head.Name); err != nil {
		return ConfigError("name", head.Name, err.Error())
	}
	return CheckVersion(head.CNIVersion, supported)
}

// CheckVersion reports a "cniVersion" that a plugin does not support. Its code is 1. The specification takes a missing
// version for 0.1.0.
func CheckVersion(cniVersion string, supported []string) error {
	requirement := "must be one of " + strings.Join(supported, ", ")
	switch {
	case cniVersion == "" && !slices.Contains(supported, "0.1.0"):
		return Error(types.ErrIncompatibleCNIVersion, "invalid %q: %v: %s", "cniVersion", Missing, requirement)
	case cniVersion != "" && !slices.Contains(supported, cniVersion):
		return Error(types.ErrIncompatibleCNIVersion, "invalid %q: %q: %s", "cniVersion", clip(cniVersion), requirement)
	}
	return nil
}

// addRootHint adds to an error that the plugin does not run as root. Wrong input is no matter of root.
func addRootHint(err *types.Error, name string, uid int) *types.Error {
	wrongInput := []uint{types.ErrIncompatibleCNIVersion, types.ErrInvalidEnvironmentVariables, types.ErrDecodingFailure, types.ErrInvalidNetworkConfig}
	if uid == 0 || slices.Contains(wrongInput, err.Code) {
		return err
	}
	return types.NewError(err.Code, fmt.Sprintf("%s (%s needs root and runs as user %d)", err.Msg, name, uid), err.Details)
}

// withCode returns err with its code.
func withCode(err error) *types.Error {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded
	}
	return types.NewError(codeOf(err), err.Error(), "")
}
