// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import "testing"

func TestRewrite(t *testing.T) {
	r := newRewriter(map[string]string{
		"/etc/sluice": "/pods/a/config", "/etc/sluice/certificates": "/pods/a/certs", "/host/proc": "/nodes/dgx-1/proc",
	}, map[int32]int{9443: 21001, 8080: 21002, 80: 21003})
	tests := map[string]struct{ text, want string }{
		"argument":                      {"--config=/etc/sluice/webhook.yaml", "--config=/pods/a/config/webhook.yaml"},
		"innermost mount":               {"certificates: /etc/sluice/certificates/tls.crt", "certificates: /pods/a/certs/tls.crt"},
		"mount itself, quoted":          {`proc: "/host/proc"`, `proc: "/nodes/dgx-1/proc"`},
		"several":                       {"/host/proc:/etc/sluice", "/nodes/dgx-1/proc:/pods/a/config"},
		"longer name":                   {"/etc/sluice-old /etc/sluice.d/x", "/etc/sluice-old /etc/sluice.d/x"},
		"end of another path":           {"/mnt/etc/sluice", "/mnt/etc/sluice"},
		"listen on all addresses":       {`listen: ":9443"`, `listen: "127.0.0.1:21001"`},
		"unquoted":                      {"listen: :9443\nmetrics: :8080\n", "listen: 127.0.0.1:21001\nmetrics: 127.0.0.1:21002\n"},
		"explicit addresses":            {"0.0.0.0:8080,[::]:8080,127.0.0.1:8080,localhost:8080", "127.0.0.1:21002,127.0.0.1:21002,127.0.0.1:21002,127.0.0.1:21002"},
		"flag":                          {"--listen=:80", "--listen=127.0.0.1:21003"},
		"another port":                  {":8081 :80801 :8", ":8081 :80801 :8"},
		"another server":                {"server: smtp.example.org:8080", "server: smtp.example.org:8080"},
		"a server that ends alike":      {"server: 10.127.0.0.1:8080", "server: 10.127.0.0.1:8080"},
		"neither":                       {"level: info", "level: info"},
		"what replaces is not replaced": {"/etc/sluice /pods/a/config", "/pods/a/config /pods/a/config"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := r.rewrite(tc.text); got != tc.want {
				t.Errorf("%q became %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"NODE": "dgx-1", "A.b-c": "x"}
	for text, want := range map[string]string{
		"--node=$(NODE)/$(A.b-c)": "--node=dgx-1/x", "$(OTHER)": "$(OTHER)", "$$(NODE)": "$(NODE)", "100$": "100$", "$(": "$(",
	} {
		if got := Expand(text, values); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestImageName(t *testing.T) {
	for image, want := range map[string]string{
		"sluice-webhook": "sluice-webhook", "registry:5000/a/sluice-webhook:v1": "sluice-webhook",
		"ghcr.io/a/sluice-gpuagent@sha256:0a": "sluice-gpuagent", "r/sluice-lifecycle:v1@sha256:0a": "sluice-lifecycle",
	} {
		if got := imageName(image); got != want {
			t.Errorf("%s is %s, want %s", image, got, want)
		}
	}
}
