package services

import (
	"fmt"
	"net"
	"slices"
	"strconv"
)

// address is an address in both families.
type address struct{ v4, v6 string }

func (a address) of(family int) string {
	if family == 6 {
		return a.v6
	}
	return a.v4
}

const (
	nodeName  = "node1"
	otherName = "node2"

	serviceCIDRs = "10.96.0.0/16,fd00:96::/112"
	// port is that of all servers and Services but DNS.
	port    = 8080
	dnsPort = 53

	clientLast, backendLast = 10, 20
)

// The addresses are the same in all topologies: they know nothing of each other.
var (
	nodeAddress    = address{"192.168.7.10", "fd00:7::10"}
	otherAddress   = address{"192.168.7.20", "fd00:7::20"}
	farPodAddress  = address{"10.3.0.77", "fd00:3::77"}
	outsideAddress = address{"198.51.100.9", "2001:db8:51::9"}
	dnsAddress     = address{"169.254.20.10", "fd00:20::10"}
	clusterDNS     = address{"10.96.0.10", "fd00:96::a"}
	// nodeAddresses are all that Node1 stands for. The second one is that on the VLAN.
	nodeAddresses = []string{nodeAddress.v4, nodeAddress.v6, "10.3.0.5", "fd00:3::5"}
)

func podAddress(last int) address {
	return address{fmt.Sprintf("10.3.0.%d", last), fmt.Sprintf("fd00:3::%d", last)}
}

// service is a Service.
type service struct {
	name, policy               string
	port, nodePort, targetPort int
	cluster, balancer, backend address
	// on is the node of the backend. second is another backend, on the other node.
	on     string
	second address
}

// nobody is a Service where nobody listens, in a pod with preserveSource. spread has two backends on the other node.
var (
	nobody = service{
		name: "nobody", policy: "Local", port: port, targetPort: 8079, nodePort: 30998, on: nodeName,
		cluster: address{"10.96.0.11", "fd00:96::b"}, balancer: address{"203.0.113.98", "2001:db8:ff::998"}, backend: podAddress(backendLast + preserving),
	}
	spread = service{
		name: "spread", policy: "Cluster", port: port, targetPort: port, nodePort: 30997, on: otherName,
		cluster: address{"10.96.0.12", "fd00:96::c"}, balancer: address{"203.0.113.97", "2001:db8:ff::997"}, backend: farPodAddress, second: otherAddress,
	}
)

// policies are the external traffic policies.
var policies = []string{"Cluster", "Local"}

// endpoints are the kinds of backends.
var endpoints = []string{SameNode, Itself, FarPod, Node, Other}

// serviceOf is the Service of the pods with the settings.
func serviceOf(setting int, backend, policy string) service {
	k := 1 + slices.Index(endpoints, backend) + 10*slices.Index(policies, policy)
	s := service{
		name: fmt.Sprintf("s%d-%d", setting, k), policy: policy, on: nodeName, port: port, targetPort: port, nodePort: 30000 + 100*setting + k,
		cluster:  address{fmt.Sprintf("10.96.%d.%d", setting+1, k), fmt.Sprintf("fd00:96::%d%02d", setting+1, k)},
		balancer: address{fmt.Sprintf("203.0.113.%d", 20*setting+k), fmt.Sprintf("2001:db8:ff::%d%02d", setting+1, k)},
	}
	switch backend {
	case SameNode:
		s.backend = podAddress(backendLast + setting)
	case Itself:
		s.backend = podAddress(clientLast + setting)
	case FarPod:
		s.backend, s.on = farPodAddress, otherName
	case Node:
		s.backend = nodeAddress
	case Other:
		s.backend, s.on = otherAddress, otherName
	}
	return s
}

// services are all Services. That of the cluster's DNS has its endpoint elsewhere: only the node itself can answer instead of it.
func services() []service {
	all := []service{nobody, spread, {
		name: "dns", policy: "Cluster", port: dnsPort, targetPort: port, nodePort: 30999, on: otherName,
		cluster: clusterDNS, balancer: address{"203.0.113.99", "2001:db8:ff::999"}, backend: farPodAddress,
	}}
	for setting := range Settings {
		for _, e := range endpoints {
			for _, p := range policies {
				all = append(all, serviceOf(setting, e, p))
			}
		}
	}
	return all
}

// client returns the namespace of who asks, and its address.
func (s *topology) client(from string, setting int) (ns string, a address) {
	switch from {
	case Pod:
		return s.clients[setting].ns, s.clients[setting].address
	case Node:
		return s.node, nodeAddress
	case Outside:
		return s.outside, outsideAddress
	case FarPod:
		return s.farPod, farPodAddress
	}
	panic(from)
}

// target is what is asked for, with its port.
func (c Connection) target(setting, family int) string {
	a, p := address{}, port
	switch c.To {
	case ClusterIP:
		a = serviceOf(setting, c.Backend, "Cluster").cluster
	case NodePort:
		a, p = nodeAddress, serviceOf(setting, c.Backend, "Cluster").nodePort
	case NodePortL:
		a, p = nodeAddress, serviceOf(setting, c.Backend, "Local").nodePort
	case LoadBalancer:
		a = serviceOf(setting, c.Backend, "Cluster").balancer
	case LoadBalancerL:
		a = serviceOf(setting, c.Backend, "Local").balancer
	case NodeDNS:
		a, p = dnsAddress, dnsPort
	case ClusterDNS:
		a, p = clusterDNS, dnsPort
	case Direct:
		a = outsideAddress
		if c.Backend != Outside {
			a = serviceOf(setting, c.Backend, "Cluster").backend
		}
	}
	return net.JoinHostPort(a.of(family), strconv.Itoa(p))
}
