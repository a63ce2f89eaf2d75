// Package checkpoint remembers what was built for each attachment, so that it can be rebuilt.
package checkpoint
