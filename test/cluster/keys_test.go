package cluster

import (
	"crypto/x509/pkix"
	"testing"

	"github.com/relink-cni/relink/test/kubeapi"
)

// authority makes certificates.
type authority struct{ *kubeapi.Authority }

// issue makes NAME.crt and NAME.key for the subject.
func (a authority) issue(t *testing.T, name string, subject pkix.Name) {
	t.Helper()
	if err := a.Issue(name, subject); err != nil {
		t.Fatal(err)
	}
}
