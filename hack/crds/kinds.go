package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// kind is a kind of object.
type kind struct {
	name, short string
	// object is a value of its Go type.
	object any
	// status says that the status is apart: who writes the spec does not write it.
	status  bool
	columns []column
	// selectable are the fields by which the API can select.
	selectable []string
}

// column is one of "kubectl get". The ones with a Priority come with -o wide only.
type column struct {
	Name     string `yaml:"name"`
	Type     string `yaml:"type"`
	JSONPath string `yaml:"jsonPath"`
	Priority int    `yaml:"priority,omitempty"`
}

var age = column{"Age", "date", ".metadata.creationTimestamp", 0}

var kinds = []kind{
	{
		name: "AddressPool", short: "apool", object: pool.Pool{}, status: true,
		columns: []column{
			{"Subnet", "string", ".spec.subnet", 0},
			{"Blocks", "integer", ".status.blocks", 0},
			{"Taken", "integer", ".status.taken", 0},
			{"Addresses", "string", ".status.addresses", 0},
			{"Granted", "integer", ".status.granted", 0},
			{"Paused", "boolean", ".spec.paused", 0},
			{"Problem", "string", ".status.problem", 0},
			{"Gateway", "string", ".spec.gateway", 1},
			{"Block size", "integer", ".spec.blockSize", 1},
			{"Fence after", "string", ".spec.fenceAfter", 1},
			{"Updated", "string", ".status.updated", 1},
			age,
		},
	},
	{
		name: "AddressBlock", short: "ablock", object: pool.Block{},
		columns: []column{
			{"Pool", "string", ".spec.pool", 0},
			{"First", "string", ".spec.first", 0},
			{"Last", "string", ".spec.last", 0},
			{"Node", "string", ".spec.node", 0},
			{"Addresses", "string", ".spec.addresses", 0},
			{"Epoch", "integer", ".spec.epoch", 1},
			age,
		},
		selectable: []string{".spec.pool", ".spec.node"},
	},
	{
		name: "AddressClaim", short: "aclaim", object: pool.Claim{},
		columns: []column{
			{"Pool", "string", ".spec.pool", 0},
			{"Address", "string", ".spec.address", 0},
			{"Kind", "string", ".spec.owner.kind", 0},
			{"Namespace", "string", ".spec.owner.namespace", 0},
			{"Owner", "string", ".spec.owner.name", 0},
			{"Ordinal", "integer", ".spec.owner.ordinal", 0},
			{"Interface", "string", ".spec.ifName", 0},
			{"Node", "string", ".spec.active.node", 0},
			{"Target", "string", ".spec.target.node", 1},
			{"Epoch", "integer", ".spec.epoch", 1},
			{"Retain", "string", ".spec.retain", 1},
			age,
		},
		selectable: []string{".spec.pool", ".spec.address", ".spec.active.node"},
	},
}

// definition returns the kind's CustomResourceDefinition.
func (k kind) definition(b *builder) (any, error) {
	s, err := b.schema(reflect.TypeOf(k.object), reflect.TypeOf(k.object).Name())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	plural := strings.ToLower(k.name) + "s"
	version := orderedMap{
		{"name", pool.Version}, {"served", true}, {"storage", true}, {"additionalPrinterColumns", k.columns},
		{"schema", orderedMap{{"openAPIV3Schema", s}}},
	}
	if len(k.selectable) > 0 {
		var fields []orderedMap
		for _, path := range k.selectable {
			fields = append(fields, orderedMap{{"jsonPath", path}})
		}
		version = append(version, pair{"selectableFields", fields})
	}
	if k.status {
		version = append(version, pair{"subresources", orderedMap{{"status", orderedMap{}}}})
	}
	return orderedMap{
		{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "CustomResourceDefinition"},
		{"metadata", orderedMap{{"name", plural + "." + pool.Group}}},
		{"spec", orderedMap{
			{"group", pool.Group}, {"scope", "Cluster"},
			{"names", orderedMap{{"kind", k.name}, {"listKind", k.name + "List"}, {"plural", plural}, {"singular", strings.ToLower(k.name)}, {"shortNames", []string{k.short}}}},
			{"versions", []orderedMap{version}},
		}},
	}, nil
}
