// Package fresh gives the tests of a package a network of their own on this machine's kernel.
package fresh
