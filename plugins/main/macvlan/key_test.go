package main

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

func TestParseNamesTheKeyOfAWrongTypeAsItIsWritten(t *testing.T) {
	for config, want := range map[string]string{
		`{"mtu": "1500"}`:               `invalid "mtu": "string": must be a whole number`,
		`{"linkInContainer": "yes"}`:    `invalid "linkInContainer": "string": must be true or false`,
		`{"name": 5}`:                   `invalid "name": "number": must be a string`,
		`{"ipam": "static"}`:            `invalid "ipam": "string": must be an object`,
		`{"ipam": {"type": 7}}`:         `invalid "ipam.type": "number": must be a string`,
		`{"runtimeConfig": {"mac": 7}}`: `invalid "runtimeConfig.mac": "number": must be a string`,
		`[]`:                            `network configuration: must be an object`,
	} {
		_, err := parse([]byte(config), cniplugin.Args{})
		var coded *types.Error
		if !errors.As(err, &coded) || coded.Msg != want {
			t.Errorf("parse(%s) = %v, want %s", config, err, want)
		}
	}
}
