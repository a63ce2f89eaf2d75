package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

const dashboardFile = "../../deploy/grafana/relink.json"

// panel is what the tests read of a panel of the dashboard.
type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource source `json:"datasource"`
	Targets    []struct {
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
		Datasource source `json:"datasource"`
	} `json:"targets"`
	Panels []panel `json:"panels"`
}

type source struct {
	UID string `json:"uid"`
}

// query is a query of the dashboard as Grafana sends it.
type query struct{ panel, expr, legend string }

// grafana puts in what Grafana puts in for all nodes.
var grafana = strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")

// dashboard returns all queries of the dashboard.
func dashboard(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID    string  `json:"uid"`
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	var walk func(panels []panel)
	walk = func(panels []panel) {
		for _, p := range panels {
			if seen[p.ID] || p.ID == 0 {
				t.Errorf("panel %q has the ID %d, as another one", p.Title, p.ID)
			}
			seen[p.ID] = true
			if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
				t.Errorf("panel %q has %d queries and the data source %q", p.Title, len(p.Targets), p.Datasource.UID)
			}
			for _, target := range p.Targets {
				expr := grafana.Replace(target.Expr)
				if strings.Contains(expr, "$") || target.Datasource.UID != "${datasource}" {
					t.Errorf("panel %q: a variable is unknown, or the data source is fixed: %s", p.Title, target.Expr)
				}
				queries = append(queries, query{p.Title, expr, target.Legend})
			}
			walk(p.Panels)
		}
	}
	walk(d.Panels)
	if d.UID == "" || len(queries) < 20 {
		t.Fatalf("the dashboard %q has %d queries", d.UID, len(queries))
	}
	return queries
}

// labelsOf are the labels that the legend has.
func labelsOf(legend string) (labels []string) {
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		labels = append(labels, m[1])
	}
	return labels
}
