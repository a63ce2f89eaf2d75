package kubenode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/test/cache"
)

// imageName is the image of the pods, and of their sandboxes.
const imageName = "relink.test/busybox:1"

// image is an archive in the form of `docker save` with a static busybox, and nothing else.
type image struct{ archive []byte }

// path returns the image's path in the cache, which is another one for other content.
func (i image) path(dir string) string {
	sum := sha256.Sum256(i.archive)
	return filepath.Join(dir, fmt.Sprintf("image-%x.tar", sum[:8]))
}

func buildImage() (image, error) {
	path, err := cache.LookTool("busybox")
	if err != nil {
		return image{}, err
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		return image{}, err
	}
	var layer archive
	for _, name := range []string{"bin", "dev", "etc", "proc", "sys", "www"} {
		layer.add(&tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	layer.add(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, busybox)
	for _, name := range []string{"sh", "httpd", "sleep"} {
		layer.add(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	files, err := layer.finish()
	if err != nil {
		return image{}, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		// A sandbox has this process and nothing else.
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sleep", "2147483647"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(files))}},
	})
	if err != nil {
		return image{}, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{imageName}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return image{}, err
	}
	var all archive
	all.add(&tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644}, files)
	all.add(&tar.Header{Name: "config.json", Typeflag: tar.TypeReg, Mode: 0o644}, config)
	all.add(&tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644}, manifest)
	text, err := all.finish()
	return image{text}, err
}

// archive is a tar archive that remembers its first error.
type archive struct {
	buffer bytes.Buffer
	writer *tar.Writer
	err    error
}

func (a *archive) add(header *tar.Header, content []byte) {
	if a.writer == nil {
		a.writer = tar.NewWriter(&a.buffer)
	}
	header.Size = int64(len(content))
	if a.err == nil {
		a.err = a.writer.WriteHeader(header)
	}
	if a.err == nil {
		_, a.err = a.writer.Write(content)
	}
}

func (a *archive) finish() ([]byte, error) {
	if a.err == nil {
		a.err = a.writer.Close()
	}
	return a.buffer.Bytes(), a.err
}
