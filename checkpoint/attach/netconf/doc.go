// Package netconf reads the configurations of relink-macvlan, relink-vlan and relink-checkpoint: what they ask for, and what is wrong with
// them. It looks at no device. Package attach says what a node lacks for a Request.
package netconf
