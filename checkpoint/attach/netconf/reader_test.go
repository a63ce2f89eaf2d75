package netconf

import "github.com/relink-cni/relink/pkg/cniplugin"

// macvlanOf returns what an ADD reads from a configuration, or the error that it reports.
func macvlanOf(b []byte, args cniplugin.Args) (Request, error) {
	r, errs := Macvlan(b, args)
	return r, cniplugin.FirstError(errs)
}

func vlanOf(b []byte, args cniplugin.Args) (Request, error) {
	r, errs := VLAN(b, args)
	return r, cniplugin.FirstError(errs)
}
