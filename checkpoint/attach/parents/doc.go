// Package parents decides which device of the host an attachment is built on: the master that is there, and the VLAN
// device on it. What an ADD would be refused for, CheckHost says before there is an ADD.
package parents
