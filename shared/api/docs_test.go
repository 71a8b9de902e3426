package api_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
)

// TestEveryProblemIsDocumented compares the headings of docs/problems.md with the
// problem table, both ways.
func TestEveryProblemIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, match := range regexp.MustCompile(`(?m)^## (.+?)\s*$`).FindAllStringSubmatch(string(text), -1) {
		headings = append(headings, match[1])
	}
	slugs := api.Slugs()
	slices.Sort(slugs)
	slices.Sort(headings)
	if diff := cmp.Diff(slugs, headings); diff != "" {
		t.Errorf("docs/problems.md differs from the problem table (-table +headings):\n%s", diff)
	}
	for _, slug := range slugs {
		if titles[slug] == "" {
			t.Errorf("the tests know no title of %s", slug)
		}
	}
}

// TestEveryRouteIsInTheReadme compares the table of routes with Routes, both
// ways.
func TestEveryRouteIsInTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range api.Routes {
		want = append(want, r.Key)
	}
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\|").FindAllStringSubmatch(string(text), -1) {
		got = append(got, match[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README.md differs from Routes (-Routes +README):\n%s", diff)
	}
}
