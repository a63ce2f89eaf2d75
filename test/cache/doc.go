// Package cache keeps what the tests fetch or build once and use many times: programs and kernels, in a directory
// outside the checkout.
package cache
