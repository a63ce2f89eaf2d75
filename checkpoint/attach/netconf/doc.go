// Package netconf reads what the configurations of relink-macvlan, relink-vlan and relink-checkpoint ask for, and says what is wrong with
// them. It looks at no device: what this node lacks is package attach's.
package netconf
