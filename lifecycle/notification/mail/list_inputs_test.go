// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

func TestFormatCounts(t *testing.T) {
	for text, want := range map[string][2]string{
		"Job=3,RoleBinding=2":                 {"3 Jobs, 2 RoleBindings", "3 Jobs, 2 RoleBindings"},
		"Namespace=1,PersistentVolumeClaim=2": {"1 Namespace, 2 Volumes", "1 Namespace, 2 volumes"},
		"PersistentVolumeClaim=1":             {"1 Volume", "1 volume"},
		"NetworkPolicy=2,Ingress=2,Gateway=2": {"2 NetworkPolicies, 2 Ingresses, 2 Gateways", "2 NetworkPolicies, 2 Ingresses, 2 Gateways"},
		"Endpoints=2":                         {"2 Endpoints", "2 Endpoints"},
	} {
		counts, err := ParseCounts(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		german, english := &TemplateData{Language: string(v1alpha1.LanguageGerman)}, &TemplateData{Language: string(v1alpha1.LanguageEnglish)}
		if diff := cmp.Diff(want, [2]string{german.localizeCounts(counts), english.localizeCounts(counts)}); diff != "" {
			t.Errorf("%s (-want +got)\n%s", text, diff)
		}
	}
	if got := FormatCounts([]Count{{"Job", 3}, {"CronJob", 0}, {"Pod", -1}, {"RoleBinding", 2}}); got != "Job=3,RoleBinding=2" {
		t.Errorf("written as %q", got)
	}
}

func TestParseCountsInvalid(t *testing.T) {
	var many []Count
	for i := range maxCounts + 1 {
		many = append(many, Count{fmt.Sprintf("Kind%d", i), 1})
	}
	for text, want := range map[string]string{
		"": "is not of the form", "Job": "is not of the form", "Job=": "is not of the form", "Job=0": "is not of the form",
		"Job=-1": "is not of the form", "Job=03": "is not of the form", "Job=1.5": "is not of the form", "Job=9999999999": "is not of the form",
		"job=1": "is not of the form", "Job=1,": "is not of the form", "Job=1, Pod=2": "is not of the form", "Job=1;Pod=2": "is not of the form",
		"Job=1\nPod=2": "is not of the form", "Job=1,Job=2": "Job is listed twice", "3 Jobs": "is not of the form",
		strings.Repeat("J", 64) + "=1": "is not of the form", FormatCounts(many): "at most 64",
	} {
		if counts, err := ParseCounts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, counts, err, want)
		}
	}
}

// FuzzParseCounts: parsing and formatting round-trip.
func FuzzParseCounts(f *testing.F) {
	for _, text := range []string{"Job=3,RoleBinding=2", "Job=1", "", ",", "A=1,A=1", "Ä=1", "Job=1\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := ParseCounts(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n\x00") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		if got := FormatCounts(counts); got != text {
			t.Errorf("%q was read, and written as %q", text, got)
		}
		p := &TemplateData{Language: string(v1alpha1.LanguageGerman)}
		if p.localizeCounts(counts) == "" {
			t.Errorf("%q says nothing", text)
		}
	})
}
