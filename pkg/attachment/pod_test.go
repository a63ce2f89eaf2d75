package attachment

import (
	"strings"
	"testing"
)

func TestPodsAndNamespacesHaveNamesOfKubernetes(t *testing.T) {
	long := strings.Repeat("a", 63)
	for pod, want := range map[Pod]string{
		{Namespace: "shop", Name: "web-0"}:                      "",
		{Namespace: "kube-system", Name: "etcd.node-1.lan"}:     "",
		{Namespace: long, Name: long + "." + long + "." + long}: "",
		{Namespace: "shop", Name: ""}:                           "no pod can have the name \"\"",
		{Namespace: "", Name: "web-0"}:                          "no namespace can have the name \"\"",
		{Namespace: "shop.a", Name: "web-0"}:                    "no namespace can have the name \"shop.a\"",
		{Namespace: long + "a", Name: "web-0"}:                  "no namespace can have the name \"" + long + "a\"",
		{Namespace: "shop", Name: "Web-0"}:                      "no pod can have the name \"Web-0\"",
		{Namespace: "shop", Name: "web_0"}:                      "no pod can have the name \"web_0\"",
		{Namespace: "shop", Name: "-web"}:                       "no pod can have the name \"-web\"",
		{Namespace: "shop", Name: "web-.a"}:                     "no pod can have the name \"web-.a\"",
		{Namespace: "shop", Name: "web..a"}:                     "no pod can have the name \"web..a\"",
		{Namespace: "shop", Name: strings.Repeat("a", 254)}:     "no pod can have the name \"" + strings.Repeat("a", 254) + "\"",
	} {
		err := pod.Validate()
		if got, _, _ := strings.Cut(message(err), ": it must"); got != want {
			t.Errorf("%+v: %q, want %q", pod, got, want)
		}
	}
}
