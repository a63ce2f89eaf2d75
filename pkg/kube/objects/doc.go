// Package objects reads and writes objects of a Kubernetes API, one request at a time, and says what each answer means. [PoolAPI] has
// those of address pools. The package links only that part of client-go which finds an API and makes requests.
package objects
