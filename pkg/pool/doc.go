// Package pool decides which node may give which address of a pool that many nodes share. It is pure: it has the objects of
// the Kubernetes API as plain data, and the steps by which they change. It reads and writes nothing.
//
// A [Pool] is cut into blocks. A [Block] says of each of its addresses whose it is, by one character. So an address never has
// two owners. A node keeps a [Grant] of each block in which it has addresses. What a node may give is always a part of
// what the API says it has:
//
//   - An address comes into a grant only by [Grant.Adopt], from a block that the API itself has just answered.
//   - An address leaves the block only after the grant has marked it ([Grant.Mark]). A mark is never taken back.
//   - The API changes a block only if it is still the one that the change was made from.
package pool
