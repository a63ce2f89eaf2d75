// Package gc audits the node every few minutes for relink-agent, and frees what two audits have proven dead.
package gc
