// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/decisionlog"
)

// record returns the record of the creation of an object, as it is read again.
func record(t *testing.T, mask, unmasked []string, object, patch string) *decisionlog.Record {
	t.Helper()
	var out bytes.Buffer
	log, err := decisionlog.New(decisionlog.Options{Output: &out, Objects: true, Mask: mask, Unmasked: unmasked})
	if err != nil {
		t.Fatal(err)
	}
	log.Add(entry(object, patch))
	log.Close()
	parsed, err := decisionlog.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func entry(object, patch string) decisionlog.Entry {
	request := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create}
	request.UserInfo.Username = "anna"
	request.UserInfo.Extra = map[string]v1Extra{"token": {"secret-extra"}}
	request.Object.Raw = []byte(object)
	return decisionlog.Entry{
		Record: decisionlog.Record{Webhook: "pods", UID: "u", Allowed: true}, Request: request, Patch: []byte(patch),
		Tenant: &decision.Tenant{Project: "thesis", Department: "students", TimeZone: utc, Documents: decision.Documents{
			Project: document.New(map[string]any{}), Department: document.New(map[string]any{}), NodePools: document.New([]any{}),
			Use: document.New(map[string]any{}),
		}},
	}
}

func TestMaskedTexts(t *testing.T) {
	const object = `{"metadata": {"annotations": {"sluice.dev/gpu": "1", "a/b": "secret-1"}, "managedFields": [{"manager": "x"}]},
		"spec": {"containers": [{"name": "main", "args": ["secret-1", "secret-2", ""], "image": "secret-1",
		"env": [{"name": "NVIDIA_X", "value": "all"}, {"name": "TOKEN", "value": "secret-3"}, {"name": "FROM", "valueFrom": {"fieldRef": {}}}]}], "n": 12345678901234567890}}`
	for name, tc := range map[string]struct {
		mask, unmasked []string
		masked         []string
		object         string
	}{
		"default": {
			decisionlog.DefaultMask, decisionlog.DefaultUnmasked,
			[]string{
				"/request/userInfo/extra/token/0", "/object/metadata/annotations/a~1b", "/object/spec/containers/0/args/0",
				"/object/spec/containers/0/args/1", "/object/spec/containers/0/env/1/value",
			},
			`{"metadata":{"annotations":{"a/b":"(masked 2)","sluice.dev/gpu":"1"}},"spec":{"containers":[{"args":["(masked 2)","(masked 3)",""],` +
				`"env":[{"name":"NVIDIA_X","value":"all"},{"name":"TOKEN","value":"(masked 4)"},{"name":"FROM","valueFrom":{"fieldRef":{}}}],` +
				`"image":"secret-1","name":"main"}],"n":12345678901234567890}}`,
		},
		"nothing": {
			nil, nil, nil,
			`{"metadata":{"annotations":{"a/b":"secret-1","sluice.dev/gpu":"1"}},"spec":{"containers":[{"args":["secret-1","secret-2",""],` +
				`"env":[{"name":"NVIDIA_X","value":"all"},{"name":"TOKEN","value":"secret-3"},{"name":"FROM","valueFrom":{"fieldRef":{}}}],` +
				`"image":"secret-1","name":"main"}],"n":12345678901234567890}}`,
		},
		"by name and by index": {
			[]string{"/object/spec/containers/main/env/TOKEN/value", "/object/spec/containers/0/args/1", "/**/a~1b"},
			nil,
			[]string{"/object/metadata/annotations/a~1b", "/object/spec/containers/0/args/1", "/object/spec/containers/0/env/1/value"},
			`{"metadata":{"annotations":{"a/b":"(masked 1)","sluice.dev/gpu":"1"}},"spec":{"containers":[{"args":["secret-1","(masked 2)",""],` +
				`"env":[{"name":"NVIDIA_X","value":"all"},{"name":"TOKEN","value":"(masked 3)"},{"name":"FROM","valueFrom":{"fieldRef":{}}}],` +
				`"image":"secret-1","name":"main"}],"n":12345678901234567890}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			const patch = `[{"op":"add","path":"/spec/containers/0/env/3","value":{"name":"B","value":"secret-3"}},{"op":"add","path":"/metadata/labels","value":{"a":"secret-1"}}]`
			r := record(t, tc.mask, tc.unmasked, object, patch)
			if diff := cmp.Diff(tc.masked, r.Masked); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.object, string(r.Input.Object)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			wantPatch := patch
			if name == "default" {
				wantPatch = strings.ReplaceAll(patch, "secret-3", "(masked 4)")
			}
			if diff := cmp.Diff(wantPatch, string(r.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if tc.mask != nil && tc.unmasked != nil && strings.Contains(string(r.Input.Request), "secret") {
				t.Errorf("the request has a secret: %s", r.Input.Request)
			}
		})
	}
}

// Guards secrets in workloads that are no pods: Argo's and Ray's objects have them in fields of their own.
func TestDefaultMaskOfWorkloads(t *testing.T) {
	for name, object := range map[string]string{
		"arguments of a Workflow": `{"spec":{"arguments":{"parameters":[{"name":"token","value":"hunter22"}]}}}`,
		"inputs of a template":    `{"spec":{"templates":[{"inputs":{"parameters":[{"name":"token","default":"hunter22"}]}}]}}`,
		"arguments of a step":     `{"spec":{"templates":[{"steps":[[{"arguments":{"parameters":[{"name":"t","value":"hunter22"}]}}]]}]}}`,
		"items of a step":         `{"spec":{"templates":[{"dag":{"tasks":[{"withItems":[{"token":"hunter22"}]}]}}]}}`,
		"a script":                `{"spec":{"templates":[{"script":{"image":"python","source":"token = 'hunter22'"}}]}}`,
		"a manifest":              `{"spec":{"templates":[{"resource":{"action":"create","manifest":"token: hunter22"}}]}}`,
		"a request":               `{"spec":{"templates":[{"http":{"url":"https://a","headers":[{"name":"Authorization","value":"hunter22"}],"body":"hunter22"}}]}}`,
		"a CronWorkflow":          `{"spec":{"workflowSpec":{"arguments":{"parameters":[{"name":"token","value":"hunter22"}]}}}}`,
		"a RayService":            `{"spec":{"serveConfigV2":"runtime_env: {env_vars: {TOKEN: hunter22}}"}}`,
	} {
		r := record(t, decisionlog.DefaultMask, decisionlog.DefaultUnmasked, object, "")
		if strings.Contains(string(r.Input.Object), "hunter22") || len(r.Masked) == 0 {
			t.Errorf("%s: %s", name, r.Input.Object)
		}
	}
}

// Guards secrets in annotations of namespaces, which tools of others write.
func TestDefaultMaskOfNamespaces(t *testing.T) {
	var out bytes.Buffer
	log, err := decisionlog.New(decisionlog.Options{
		Output: &out, Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := entry(`{"spec":{}}`, "")
	e.Tenant.Documents.Namespace = document.New(map[string]any{
		"labels":      map[string]any{"team": "a"},
		"annotations": map[string]any{"example.org/token": "hunter22", "sluice.dev/project": "thesis"},
	})
	log.Add(e)
	log.Close()
	r, err := decisionlog.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"annotations":{"example.org/token":"(masked 2)","sluice.dev/project":"thesis"},"labels":{"team":"a"}}`
	if diff := cmp.Diff(want, string(r.Input.Tenant.Input["namespace"])); diff != "" {
		t.Errorf("namespace (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/request/userInfo/extra/token/0", "/tenant/input/namespace/annotations/example.org~1token"}, r.Masked); diff != "" {
		t.Errorf("masked (-want +got):\n%s", diff)
	}
}

// Messages never have the values of variables and arguments, whatever is masked and also without objects.
func TestMessagesAreRedacted(t *testing.T) {
	for _, objects := range []bool{false, true} {
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Output: &out, Objects: objects, Mask: decisionlog.DefaultMask})
		if err != nil {
			t.Fatal(err)
		}
		e := entry(`{"spec":{"containers":[{"env":[{"name":"T","value":"secret-value"}],"args":["--password=hunter22"]}]}}`, "")
		e.Record.Message, e.Record.Warnings = "T is secret-value", []string{"do not use --password=hunter22 here", "fine"}
		log.Add(e)
		log.Close()
		r, err := decisionlog.Parse(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if r.Message != "T is ***" || !cmp.Equal(r.Warnings, []string{"do not use *** here", "fine"}) || (r.Input != nil) != objects {
			t.Errorf("%q %q", r.Message, r.Warnings)
		}
		if strings.Contains(out.String(), "hunter22") || strings.Contains(out.String(), "secret-value") {
			t.Errorf("the record has a secret: %s", out.String())
		}
	}
}

func TestParsePatternErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "want a JSON pointer",
		"/":                                  "want a JSON pointer",
		"spec":                               "want a JSON pointer",
		"/object//a":                         "step 2 is empty",
		"/a*b*":                              "at most one * is allowed",
		"/object/**":                         "the last step is **",
		"/a~2":                               "write ~1 for / and ~0 for ~",
		"/" + strings.Repeat("a/", 20) + "a": "has 21 steps; at most 16 are allowed",
		"/" + strings.Repeat("a", 600):       "at most 512 bytes",
	} {
		if _, err := decisionlog.ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := decisionlog.New(decisionlog.Options{Mask: []string{"/a", "b"}}); err == nil || !strings.Contains(err.Error(), `[1] "b"`) {
		t.Errorf("the error is %v", err)
	}
}

// Any pattern and object are masked without a panic; what is masked is no longer there, and the rest is unchanged.
func FuzzMask(f *testing.F) {
	f.Add("/**/env/*/value", `{"spec":{"env":[{"name":"a","value":"secret"}]}}`)
	f.Add("/object/**/**/a", `{"a":{"a":{"a":["x"]}}}`)
	f.Add("/object/a~1b*/c", `{"a/bc":{"c":"x"}}`)
	f.Fuzz(func(t *testing.T, pattern, object string) {
		if _, err := decisionlog.ParsePattern(pattern); err != nil {
			return
		}
		decoded, err := document.Decode([]byte(object))
		if err != nil || decoded.Object() == nil {
			return
		}
		r := record(t, []string{pattern}, nil, object, "")
		if len(r.Masked) > 0 || r.Input == nil {
			return
		}
		want, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, r.Input.Object) {
			t.Errorf("%s became %s", want, r.Input.Object)
		}
	})
}
