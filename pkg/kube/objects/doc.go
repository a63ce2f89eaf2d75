// Package objects reads and writes objects of a Kubernetes API, one request at a time, and says what each answer means. [PoolAPI] has
// those of address pools. It links of client-go only what finds and reaches an API: the command starts faster without the rest.
package objects
