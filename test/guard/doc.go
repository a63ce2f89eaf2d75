// Package guard tests relink guard as an operator runs it: commands that fail, hang, fork or never bring the NIC
// back, kills at each step, signals, and a terminal that dies. Each test has a host of its own, in a network
// namespace: a NIC that is a veth pair, a gateway, a pod, and units that a script of the test starts and stops in
// the place of systemctl.
package guard
