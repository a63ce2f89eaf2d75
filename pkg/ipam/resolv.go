package ipam

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// reason is what the kernel says, without the path. The message has the path already.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// dns returns what the file of "resolvConf" has. It is empty without that key. A file that cannot be read is an error
// with code 7.
func (n network) dns() (types.DNS, error) {
	if n.ResolvConf == "" {
		return types.DNS{}, nil
	}
	dns, err := readResolvConf(n.ResolvConf)
	if err != nil {
		return types.DNS{}, cniplugin.ConfigError("ipam.resolvConf", n.ResolvConf, "must be a file that can be read: "+reason(err))
	}
	return dns, nil
}

// readResolvConf reads what resolv.conf(5) has for a result.
func readResolvConf(path string) (types.DNS, error) {
	var dns types.DNS
	f, err := os.Open(path)
	if err != nil {
		return dns, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue // It has no value. A comment begins with its sign, and matches none of the words below.
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns, lines.Err()
}
