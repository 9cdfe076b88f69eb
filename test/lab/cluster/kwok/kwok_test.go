// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"sluice.dev/test/lab/cluster/kwok"
)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kwok")
	got, err := kwok.Write(dir, kwok.Options{Kubeconfig: "/etc/kwok.kubeconfig"})
	if err != nil {
		t.Fatal(err)
	}
	want := kwok.Command{
		Args: []string{
			"--config=" + dir + "/kwok.yaml",
			"--kubeconfig=/etc/kwok.kubeconfig",
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
			"--node-lease-duration-seconds=12",
			"--cidr=198.19.0.0/16",
			"--enable-crds=",
			"--server-address=",
			"--node-port=0",
		},
		Env: []string{"KWOK_WORKDIR=" + dir + "/work"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	written, err := os.ReadFile(dir + "/kwok.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := kwok.Config()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, config) {
		t.Error("the file is not Config()")
	}

	if _, err := kwok.Write(dir, kwok.Options{}); err == nil || !strings.Contains(err.Error(), "Options.Kubeconfig") {
		t.Errorf("without a kubeconfig: %v, want an error that names Options.Kubeconfig", err)
	}
}

// kwok ignores unknown fields, including misspelled ones. The schema of its
// CustomResourceDefinition rejects them.
func TestStagesMatchKwokSchema(t *testing.T) {
	schema, validator := stageSchema(t)
	paths, err := filepath.Glob("stages/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stages: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var stage map[string]any
			if err := yaml.UnmarshalStrict(raw, &stage); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateCustomResource(nil, stage, validator); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
			unknown := pruning.PruneWithOptions(stage, schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
			if len(unknown) > 0 {
				t.Errorf("fields unknown to kwok: %v", unknown)
			}
			want := strings.TrimSuffix(filepath.Base(path), ".yaml")
			if got := stage["metadata"].(map[string]any)["name"]; got != want {
				t.Errorf("the stage is named %v, want the name of the file %s", got, want)
			}
		})
	}
}

func stageSchema(t *testing.T) (*structuralschema.Structural, validation.SchemaValidator) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/kwok") // it may not be in the module cache yet
	download.Dir, download.Stderr, download.Env = pins, os.Stderr, append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	if err != nil {
		t.Fatalf("download kwok's source: %v", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(module.Dir, "kustomize/crd/bases/kwok.x-k8s.io_stages.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	return structural, validator
}

func TestRBACGrantsNoWildcards(t *testing.T) {
	for doc := range bytes.SplitSeq(kwok.RBAC, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(role.Rules)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), `"*"`) || strings.Contains(string(raw), "secrets") {
			t.Errorf("%s %s grants too much: %s", role.Kind, role.Name, raw)
		}
	}
}

func TestCheckAnnotations(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"none", nil, ""},
		{"run for", map[string]string{kwok.RunFor: "1h30m"}, ""},
		{"fractions", map[string]string{kwok.RunFor: "0.5s"}, ""},
		{"fail", map[string]string{kwok.FailAfter: "10s", kwok.ExitCode: "255"}, ""},
		{"others'", map[string]string{"example.org/run-for": "soon"}, ""},
		{
			"not a duration",
			map[string]string{kwok.RunFor: "soon"},
			`annotation sim.sluice.dev/run-for: "soon" is not a duration: write it like 30s or 1h30m`,
		},
		{
			"negative",
			map[string]string{kwok.FailAfter: "-1s"},
			`annotation sim.sluice.dev/fail-after: "-1s" is not a duration: write it like 30s or 1h30m`,
		},
		{
			"too long",
			map[string]string{kwok.RunFor: "99999999999h"},
			`annotation sim.sluice.dev/run-for: "99999999999h" is not a duration: write it like 30s or 1h30m`,
		},
		{
			"both",
			map[string]string{kwok.RunFor: "1s", kwok.FailAfter: "1s"},
			"annotations sim.sluice.dev/run-for and sim.sluice.dev/fail-after: set only one: a pod either completes or fails",
		},
		{
			"exit code alone",
			map[string]string{kwok.ExitCode: "1"},
			"annotation sim.sluice.dev/exit-code: has no effect without sim.sluice.dev/fail-after",
		},
		{
			"success",
			map[string]string{kwok.FailAfter: "1s", kwok.ExitCode: "0"},
			`annotation sim.sluice.dev/exit-code: "0" is not an exit code of a failure: write a number from 1 to 255`,
		},
		{
			"not a number",
			map[string]string{kwok.FailAfter: "1s", kwok.ExitCode: "0x1"},
			`annotation sim.sluice.dev/exit-code: "0x1" is not an exit code of a failure: write a number from 1 to 255`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := kwok.CheckAnnotations(tc.annotations); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
