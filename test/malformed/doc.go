// Package malformed has configurations and command lines as somebody types them at 3 a.m., and what relink says to them.
package malformed
