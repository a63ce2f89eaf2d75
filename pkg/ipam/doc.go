// Package ipam gives addresses to attachments and keeps them with their owners, in one file for each network.
package ipam
