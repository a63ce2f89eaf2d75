package netconf

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

func TestMacvlanNamesTheKeyOfAWrongTypeAsItIsWritten(t *testing.T) {
	for config, want := range map[string]string{
		`{"mtu": "1500"}`:               `invalid "mtu": "1500": must be a whole number, without quotation marks`,
		`{"linkInContainer": "yes"}`:    `invalid "linkInContainer": "yes": must be true or false, without quotation marks`,
		`{"name": 5}`:                   `invalid "name": 5: must be a string: put it in quotation marks`,
		`{"ipam": "static"}`:            `invalid "ipam": "static": must be an object: put its keys in { }`,
		`{"ipam": {"type": 7}}`:         `invalid "ipam.type": 7: must be a string: put it in quotation marks`,
		`{"runtimeConfig": {"mac": 7}}`: `invalid "runtimeConfig.mac": 7: must be a string: put it in quotation marks`,
		`[]`:                            `network configuration: must be an object`,
	} {
		_, err := macvlanOf([]byte(config), cniplugin.Args{})
		var coded *types.Error
		if !errors.As(err, &coded) || coded.Msg != want {
			t.Errorf("macvlanOf(%s) = %v, want %s", config, err, want)
		}
	}
}
