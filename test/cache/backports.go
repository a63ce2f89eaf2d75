package cache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Backports are the backports of this machine's Debian, with package lists of their own: the machine's sources stay as they are.
type Backports struct {
	dir, suite string
}

// OpenBackports reads the package lists into dir. They come from where this machine gets its own packages. The caller closes the
// Backports, which removes dir.
func OpenBackports(ctx context.Context, dir string) (_ *Backports, retErr error) {
	if err := os.MkdirAll(filepath.Join(dir, "lists/partial"), 0o755); err != nil {
		return nil, err
	}
	b := &Backports{dir: dir}
	defer func() {
		if retErr != nil {
			b.Close()
		}
	}()
	archive, err := b.archive(ctx)
	if err != nil {
		return nil, err
	}
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", archive, b.suite)
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(source), 0o600); err != nil {
		return nil, err
	}
	if _, err := b.apt(ctx, dir, "update"); err != nil {
		return nil, fmt.Errorf("reading the package lists of %s %s: %w", archive, b.suite, err)
	}
	return b, nil
}

// Close removes the package lists.
func (b *Backports) Close() { _ = os.RemoveAll(b.dir) } // It only wastes space.

// archive returns the address of Debian's archive in this machine's sources, and notes the suite.
func (b *Backports) archive(ctx context.Context) (string, error) {
	release, err := Tool(ctx, "/", "sh", "-c", `. /etc/os-release && echo "$ID $VERSION_CODENAME"`)
	if err != nil {
		return "", err
	}
	id, codename, _ := strings.Cut(strings.TrimSpace(release), " ")
	if id != "debian" || codename == "" {
		return "", fmt.Errorf("this machine is no Debian but %q: install a newer qemu", strings.TrimSpace(release))
	}
	b.suite = codename + "-backports"
	targets, err := Tool(ctx, "/", "apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(targets) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "Debian" && words[1] == codename {
			return words[2], nil
		}
	}
	return "", fmt.Errorf("no source of this machine is Debian's %s; run apt-get update", codename)
}

// apt runs apt-get in a directory with the lists of the Backports alone.
func (b *Backports) apt(ctx context.Context, dir string, args ...string) (string, error) {
	options := []string{
		"-o", "APT::Sandbox::User=root", "-o", "Dir::State::lists=" + filepath.Join(b.dir, "lists"), "-o", "Dir::Cache=" + b.dir,
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(b.dir, "sources.list"), "-o", "Dir::Etc::sourceparts=-", "-q",
	}
	return Tool(ctx, dir, "apt-get", append(options, args...)...)
}

// Unpack unpacks the package of this name into a directory.
func (b *Backports) Unpack(ctx context.Context, name, to string) error {
	if _, err := b.apt(ctx, b.dir, "download", name); err != nil {
		return fmt.Errorf("downloading the package %s of %s: %w", name, b.suite, err)
	}
	files, _ := filepath.Glob(filepath.Join(b.dir, name+"_*.deb"))
	if len(files) != 1 {
		return fmt.Errorf("downloading the package %s of %s left %d files", name, b.suite, len(files))
	}
	_, err := Tool(ctx, b.dir, "dpkg", "-x", files[0], to)
	return err
}
