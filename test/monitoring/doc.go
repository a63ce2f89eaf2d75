// Package monitoring shows that what is in deploy/prometheus and deploy/grafana fits the agent: Debian's Prometheus scrapes a
// real agent that restores something real, loads the alert rules, and answers each query of the dashboard with data.
package monitoring
