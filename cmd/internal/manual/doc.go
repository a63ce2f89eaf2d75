// Package manual writes the manual pages of programs that are built with the tag man. No release contains it.
package manual
