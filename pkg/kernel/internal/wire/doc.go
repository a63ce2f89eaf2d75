// Package wire makes and reads the Ethernet frames by which hosts tell each other who has an
// address: ARP (RFC 826, RFC 5227) for IPv4, and messages of neighbour discovery (RFC 4861,
// RFC 4862, RFC 7527) for IPv6. It opens no socket and knows no device.
//
//   - Announcement tells the neighbours which MAC an address is at. Tagged gives a frame a VLAN tag.
//   - Solicitation asks which MAC an address is at, as a host does before it sends to a neighbour, or
//     whether another host has the address. ParseClaim reads what comes back.
//     What it reads is from strangers: no frame makes it fail, and what is malformed says nothing.
//   - ARPFilter and NeighbourFilter are programs for the kernel. They keep all frames away from a
//     probing socket that cannot answer a probe.
package wire
