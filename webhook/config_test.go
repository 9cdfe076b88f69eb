// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/api/config"
	"sluice.dev/webhook"
)

const configHeader = "apiVersion: config.sluice.dev/v1alpha1\nkind: WebhookConfig\n"

func TestConfigDefaults(t *testing.T) {
	var got webhook.Config
	if err := config.Parse([]byte(configHeader), &got); err != nil {
		t.Fatal(err)
	}
	if got.PolicyTimeout.Duration != 250*time.Millisecond || got.RequestTimeout.Duration != 1500*time.Millisecond ||
		got.Listen != ":9443" || got.Certificates.Directory != "/run/sluice/certificates" {
		t.Errorf("defaults = %+v", got)
	}
	if d := got.Decisions; !*d.Stdout || d.Objects || d.File.Path != "" || d.File.MaxFiles != 10 || len(d.Mask) == 0 || len(d.Unmasked) == 0 {
		t.Errorf("defaults = %+v", d)
	}
	if err := config.Parse([]byte(configHeader+"decisions: {mask: []}\n"), &got); err != nil || len(got.Decisions.Mask) != 0 {
		t.Errorf("an empty list masks %v, %v", got.Decisions.Mask, err)
	}
}

func TestConfigReportsInvalidFields(t *testing.T) {
	tests := map[string]struct {
		yaml string
		want []string
	}{
		"a negative time limit":   {"policyTimeout: -1s\n", []string{"policyTimeout", "-1s", "1ms to 10s"}},
		"too short":               {"policyTimeout: 1us\n", []string{"policyTimeout", "1ms to 10s"}},
		"too long":                {"policyTimeout: 11s\nrequestTimeout: 1h\n", []string{"policyTimeout", "requestTimeout", "1h0m0s", "to 10s"}},
		"shorter than one policy": {"policyTimeout: 2s\n", []string{"requestTimeout", "1.5s", "policyTimeout (2s) to 10s"}},
		"no duration":             {"policyTimeout: fast\n", []string{`invalid duration "fast"`}},
		"a name":                  {"certificates: {dnsNames: [A_b]}\n", []string{"certificates.dnsNames[0]", "A_b"}},
		"a relative file":         {"decisions: {file: {path: decisions.jsonl}}\n", []string{"decisions.file.path", "decisions.jsonl", "absolute path"}},
		"sizes of files": {
			"decisions: {file: {maxBytes: 100, maxFiles: -1}}\n",
			[]string{"decisions.file.maxBytes", "65536 to 10737418240", "decisions.file.maxFiles", "1 to 1000"},
		},
		"places of masks":   {"decisions: {mask: [/**/env, spec], unmasked: [/a/**]}\n", []string{"decisions.mask[1]", "spec", "JSON pointer", "decisions.unmasked[0]", "last step"}},
		"an unknown output": {"decisions: {http: x}\n", []string{`unknown field "decisions.http"`}},
		"an address":        {"listen: localhost\n", []string{"listen", "host:port"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := config.Parse([]byte(configHeader+tc.yaml), new(webhook.Config))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}
