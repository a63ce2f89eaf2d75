// Package serve is the agent's end of the control socket. It makes the socket, which only root may use, and handles the
// requests. It passes them to an [Agent].
package serve
