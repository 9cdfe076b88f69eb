// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
	"sluice.dev/api/policytime"
)

// sampleConfig is a binary's configuration with nothing of its own.
type sampleConfig struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`
}

func (s *sampleConfig) Kind() string              { return "SampleConfig" }
func (s *sampleConfig) Type() metav1.TypeMeta     { return s.TypeMeta }
func (s *sampleConfig) Validate() field.ErrorList { return s.Common.Validate(nil) }

const sampleHeader = "apiVersion: config.sluice.dev/v1alpha1\nkind: SampleConfig\n"

func TestParseSetsDefaults(t *testing.T) {
	var got sampleConfig
	if err := config.Parse([]byte(sampleHeader), &got); err != nil {
		t.Fatal(err)
	}
	if got.Metrics != ":8080" || got.Health != ":8081" || got.Logging.Level != "info" || got.Logging.Format != "json" {
		t.Errorf("defaults = %+v", got.Common)
	}
}

func TestParseReportsInvalidFields(t *testing.T) {
	tests := map[string]struct {
		yaml string
		want []string
	}{
		"unknown field":    {sampleHeader + "metricz: x\n", []string{`line 3, column 1: unknown field "metricz"`}},
		"repeated field":   {sampleHeader + "health: ':1'\nhealth: ':2'\n", []string{"line 4", `"health" already set`}},
		"other version":    {"apiVersion: config.sluice.dev/v2\nkind: SampleConfig\n", []string{"apiVersion", "v2", "v1alpha1"}},
		"other kind":       {"apiVersion: config.sluice.dev/v1alpha1\nkind: Pod\n", []string{"kind", "Pod", "SampleConfig"}},
		"empty":            {"", []string{"apiVersion"}},
		"other case":       {sampleHeader + "Health: ':1'\n", []string{`unknown field "Health"`}},
		"two documents":    {sampleHeader + "---\nhealth: ':1'\n", []string{"more than one document"}},
		"not a mapping":    {"- a\n", []string{"cannot unmarshal"}},
		"address":          {sampleHeader + "metrics: localhost\n", []string{"line 3, column 1: metrics", "localhost", "host:port"}},
		"port":             {sampleHeader + "health: ':70000'\n", []string{"health", "70000", "65535"}},
		"several at once":  {sampleHeader + "health: x\nlogging: {level: loud, format: xml}\n", []string{"health", "logging.level", `"loud"`, `"debug"`, "logging.format", `"xml"`}},
		"wrong type":       {sampleHeader + "logging: 7\n", []string{"line 3, column 1", "logging"}},
		"unknown below":    {sampleHeader + "# a comment\nlogging:\n  level: info\n  colour: red\n", []string{`line 6, column 3: unknown field "logging.colour"`}},
		"two unknown":      {sampleHeader + "a: 1\nb: 2\n", []string{`[line 3, column 1: unknown field "a", line 4, column 1: unknown field "b"]`}},
		"invalid below":    {sampleHeader + "logging:\n  level: loud\n", []string{"line 4, column 3: logging.level"}},
		"after a comment":  {"# a\n---\n" + sampleHeader + "b: 1\n", []string{`line 5, column 1: unknown field "b"`}},
		"no access":        {sampleHeader + "metricsAccess: Everyone\n", []string{"line 3", "metricsAccess", "Everyone", `"Authorized", "Open"`}},
		"YAML that is not": {"{", []string{"yaml"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got sampleConfig
			err := config.Parse([]byte(tc.yaml), &got)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestLoadReportsFilePath(t *testing.T) {
	var got sampleConfig
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if err := config.Load(missing, &got); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("err = %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := config.Load(large, &got); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("err = %v, want the size refused", err)
	}
}

func TestCommonReportsUnusableFiles(t *testing.T) {
	c := config.Common{Kubeconfig: filepath.Join(t.TempDir(), "none")}
	if _, err := c.RESTConfig(); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("Rest() = %v", err)
	}
	broken := filepath.Join(t.TempDir(), policytime.FileName)
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ClockFile = broken
	if _, err := c.Clock(logr.Discard()); !errors.Is(err, policytime.ErrInvalid) {
		t.Errorf("Clock() = %v, want ErrInvalid", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sampleHeader))
	f.Add([]byte(sampleHeader + "logging: {level: debug}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		var got sampleConfig
		_ = config.Parse(raw, &got) // must not panic
	})
}
