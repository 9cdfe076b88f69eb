// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
)

// newPreset returns a preset of a namespace.
func newPreset(namespace, name string, spec v1alpha1.PresetSpec) *v1alpha1.Preset {
	return &v1alpha1.Preset{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Preset"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec,
	}
}

// testPresets are those of the project thesis, of all projects, and of another project. One has hostile texts.
func testPresets() []client.Object {
	environment := func(image string) v1alpha1.PresetSpec {
		return v1alpha1.PresetSpec{Type: v1alpha1.PresetEnvironment, Description: "from " + image, Environment: &v1alpha1.EnvironmentPreset{Image: image}}
	}
	hostile := environment("a\x1b[31m")
	hostile.Description = "two\nlines\u202e"
	hostile.Environment.Env = []v1alpha1.PresetVariable{{Name: "A", Value: "x\n--fake   (jupyter)"}}
	hostile.Environment.Command = []string{"sh", "-c", "echo 'a b'"}
	code := v1alpha1.PresetSpec{Type: v1alpha1.PresetDataSource, DataSource: &v1alpha1.DataSourcePreset{Volumes: []v1alpha1.PresetVolume{
		{Path: "/code", Git: &v1alpha1.PresetGit{Source: "https://git.example.org/a.git", Branch: "v1\n--fake   (jupyter)", Secret: "git-access"}},
		{Path: "/data", S3: &v1alpha1.PresetS3{Bucket: "data", Key: "a/b", URL: "https://s3.example.org", Region: "eu", Secret: "s3-access"}},
	}}}
	return []client.Object{
		newPreset("thesis", "code", code),
		newPreset("sluice-system", "jupyter", environment("jupyter")), newPreset("sluice-system", "torch", environment("torch")),
		newPreset("thesis", "torch", environment("thesis-torch")), newPreset("other", "theirs", environment("theirs")),
		newPreset("thesis", "hostile", hostile),
		newPreset("thesis", "course", v1alpha1.PresetSpec{
			Type: v1alpha1.PresetTemplate, Presets: []v1alpha1.PresetName{"jupyter", "gone"}, Compute: &v1alpha1.ComputePreset{MIGProfile: "1g.10gb"},
		}),
	}
}

func TestPresetListAndShow(t *testing.T) {
	presets, err := listPresets(t.Context(), newFakeClient(t, interceptor.Funcs{}, testPresets()...), "thesis")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var rows []presetRow
	for _, name := range presets.Names() {
		rows = append(rows, newPresetRow(presets.Find(name)))
	}
	if err := presetTable(rows).Write(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, name := range presets.Names() {
		out.WriteString("\n")
		settings, err := presets.Settings([]string{name})
		if writeErr := writePreset(&out, presets.Find(name), settings); writeErr != nil {
			t.Fatal(writeErr)
		}
		if err != nil {
			out.WriteString("sluice: " + err.Error() + "\n")
		}
	}
	golden.Assert(t, out.String(), "presets.txt")
}

// The errors of a list say what to do.
func TestPresetListErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "presets"}, "", errors.New("no right"))
	for want, err := range map[string]error{
		"list presets of namespace thesis: ":                                    forbidden,
		"`sluice whoami` shows":                                                 forbidden,
		"the cluster has no kind Preset: its Sluice is older than this command": &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Preset"}},
	} {
		broken := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err }}
		if _, got := listPresets(t.Context(), newFakeClient(t, broken), "thesis"); got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	// sluice-system is listed once.
	presets, err := listPresets(t.Context(), newFakeClient(t, interceptor.Funcs{}, testPresets()...), "sluice-system")
	if err != nil || len(presets.All) != 2 {
		t.Errorf("%d presets, %v", len(presets.All), err)
	}
}

// A dry run of the client needs no cluster.
func TestPresetCreatePrints(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	file := filepath.Join(t.TempDir(), "presets.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: sluice.dev/v1alpha1\nkind: Preset\nmetadata: {name: a, namespace: lab}\nspec: {type: Template, presets: [b]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"jupyter --type environment -i jupyter --interactive --port 8888 --description notebooks": "apiVersion: sluice.dev/v1alpha1\nkind: Preset\nmetadata:\n  name: jupyter\nspec:\n" +
			"  description: notebooks\n  environment:\n    image: jupyter\n    ports:\n    - port: 8888\n    workloadType: interactive\n  type: Environment\n",
		"run --type ENVIRONMENT -n lab --command -- python -c 1": "metadata:\n  name: run\n  namespace: lab\nspec:\n  environment:\n    command:\n    - python\n    - -c\n    - \"1\"\n  type: Environment\n",
		"code --type datasource --git-sync source=git@git.example.org:a,secret=key,target=/code --s3 bucket=data,url=https://s3,target=/data": "spec:\n  dataSource:\n    volumes:\n" +
			"    - git:\n        secret: key\n        source: git@git.example.org:a\n      path: /code\n    - path: /data\n      s3:\n        bucket: data\n        url: https://s3\n  type: DataSource\n",
		"code --type datasource --git-sync source=https://anna:hunter2@git.example.org/a,target=/a": `error: --git-sync "source=...,target=/a": source: want a repository`,
		"-f " + file:           "  name: a\n  namespace: lab\nspec:\n  presets:\n  - b\n  type: Template\n",
		"-n lab -f " + file:    "  namespace: lab\n",
		"-o json -f " + file:   "\"kind\": \"List\"",
		"-n thesis -f " + file: "error: preset a: metadata.namespace lab: the flags name namespace thesis",
		"-f " + file + " -i a": "error: --image: the file of -f has the fields of the presets; give one of the two",
		"a -f " + file:         `error: arguments ["a"]: the file of -f has the names of the presets`,
		"-f /does/not/exist":   "error: -f /does/not/exist: ",
		"a -i a":               "error: --type: give the type of the preset, Environment, DataSource, Compute or Template, or a file with -f",
		"a --type gpu":         `error: invalid argument "gpu" for "--type" flag: want Environment, DataSource, Compute or Template`,
		"a --type compute":     "error: preset a has no field: give it one, such as --gpu",
	} {
		got, err := runCommand(t, PrepareArguments(append([]string{"preset", "create", "--dry-run=client"}, strings.Fields(line)...))...)
		if err != nil {
			got = "error: " + err.Error()
		}
		if strings.HasPrefix(want, "error: ") != (err != nil) || !strings.Contains(got, want) {
			t.Errorf("preset create %s:\n%s\nwant %s", line, got, want)
		}
	}
}

// What exists is named with a command that changes it; the words of a policy stand alone.
func TestPresetRefusals(t *testing.T) {
	objects, err := presetObjects([]v1alpha1.Preset{*newPreset("", "a", v1alpha1.PresetSpec{})}, "lab", true)
	if err != nil {
		t.Fatal(err)
	}
	for want, refusal := range map[string]error{
		"preset/a exists in namespace lab: choose another name, or change it with kubectl edit preset a -n lab": apierrors.NewAlreadyExists(schema.GroupResource{Resource: "presets"}, "a"),
		"preset/a is refused: spec.type: Compute: jane may not": errors.New(
			`presets.sluice.dev "a" is forbidden: ValidatingAdmissionPolicy 'sluice-presets' with binding 'sluice-presets' denied request: spec.type: Compute: jane may not`),
	} {
		if got := explainRefusal(refusal, objects[0]).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	var out strings.Builder
	cmd := newPresetCreateCommand()
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	create := creation{dryRun: dryRunNone, output: &outputFlag{}}
	if err := create.run(cmd, newFakeClient(t, interceptor.Funcs{}), objects, presetUse(objects[0])); err != nil {
		t.Fatal(err)
	}
	if want := "preset/a created in namespace lab\n\nTo use it: sluice submit --preset a -n lab\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if _, err := new(submission.Presets).Settings([]string{"a"}); err == nil {
		t.Error("a preset that does not exist is no error")
	}
}
