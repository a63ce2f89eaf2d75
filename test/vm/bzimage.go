package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/relink-cni/relink/test/cache"
)

// unpackKernel leaves an unpacked kernel beside the packed one: qemu can start that directly, and the emulated processor
// would take half of the boot's time to unpack it. A kernel that qemu could not start so, or whose packing is unknown,
// stays as it is.
func unpackKernel(dir string) error {
	img, err := kernelFiles(dir)
	if err != nil {
		return err
	}
	release := strings.TrimPrefix(filepath.Base(img.kernel), "vmlinuz-")
	config, err := os.ReadFile(filepath.Join(dir, "boot", "config-"+release))
	if err != nil || !bytes.Contains(config, []byte("\nCONFIG_PVH=y\n")) {
		return nil
	}
	packed, err := os.ReadFile(img.kernel)
	if err != nil {
		return fmt.Errorf("reading the kernel: %w", err)
	}
	payload, size, err := bzImagePayload(packed)
	if err != nil {
		return fmt.Errorf("reading %s: %w", img.kernel, err)
	}
	program, known := kernelPacking(payload)
	if !known {
		return nil
	}
	kernel, err := unpack(program, payload)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", img.kernel, err)
	}
	if len(kernel) != size {
		return fmt.Errorf("unpacking %s: %d bytes came out instead of %d", img.kernel, len(kernel), size)
	}
	return os.WriteFile(unpackedKernel(img.kernel), kernel, 0o644)
}

// unpackedKernel returns the path that the unpacked form of a kernel has.
func unpackedKernel(packed string) string {
	return filepath.Join(filepath.Dir(packed), strings.Replace(filepath.Base(packed), "vmlinuz-", "vmlinux-", 1))
}

// kernelMagics are the beginnings of packed kernels, by the program that unpacks them. Not gzip: its own last bytes serve
// as the unpacked size.
var kernelMagics = map[string]string{"xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd"}

func kernelPacking(payload []byte) (program string, known bool) {
	for program, magic := range kernelMagics {
		if bytes.HasPrefix(payload, []byte(magic)) {
			return program, true
		}
	}
	return "", false
}

// bzImagePayload returns the packed kernel in a boot image, and the size that it unpacks to, as the header described in
// the kernel's Documentation/x86/boot.rst (since protocol 2.08) locates them.
func bzImagePayload(data []byte) (payload []byte, unpackedSize int, err error) {
	const (
		setupSectors = 0x1f1
		magic        = 0x202
		payloadAt    = 0x248
		payloadSize  = 0x24c
		headerEnd    = 0x250
		sector       = 512
	)
	if len(data) < headerEnd || string(data[magic:magic+4]) != "HdrS" {
		return nil, 0, errors.New("not a bzImage")
	}
	start := (int(data[setupSectors])+1)*sector + int(binary.LittleEndian.Uint32(data[payloadAt:]))
	end := start + int(binary.LittleEndian.Uint32(data[payloadSize:]))
	const trailer = 4 // the unpacked size follows the packed data
	if end > len(data) || end-start < trailer {
		return nil, 0, errors.New("the bzImage is cut off")
	}
	size := binary.LittleEndian.Uint32(data[end-trailer : end])
	return data[start : end-trailer], int(size), nil
}

// unpack returns what a program that understands -dc makes of data.
func unpack(program string, data []byte) ([]byte, error) {
	path, err := cache.LookTool(program)
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, "-dc")
	cmd.Stdin = bytes.NewReader(data)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s -dc: %w: %s", program, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
