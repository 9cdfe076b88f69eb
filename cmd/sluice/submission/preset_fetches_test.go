// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
)

// fetchPreset returns the preset a of one volume, with the keys of --git-sync or --s3, which are not checked.
func fetchPreset(flag string, values map[string]string) *v1alpha1.Preset {
	volume := v1alpha1.PresetVolume{Path: values["target"]}
	if flag == git {
		volume.Git = &v1alpha1.PresetGit{Source: values["source"], Branch: values["branch"], Rev: values["rev"], Secret: values["secret"]}
	} else {
		volume.S3 = &v1alpha1.PresetS3{Bucket: values["bucket"], Key: values["key"], URL: values["url"], Region: values["region"], Secret: values["secret"]}
	}
	preset := &v1alpha1.Preset{Spec: v1alpha1.PresetSpec{Type: v1alpha1.PresetDataSource, DataSource: &v1alpha1.DataSourcePreset{}}}
	preset.Name, preset.Spec.DataSource.Volumes = "a", []v1alpha1.PresetVolume{volume}
	return preset
}

// presetSchema returns what the schema and the rules of the CRD say of a preset: nothing, or why it is refused.
func presetSchema(t *testing.T) func(*v1alpha1.Preset) error {
	t.Helper()
	raw, err := os.ReadFile("../../../manifests/crds/sluice.dev_presets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	patterns, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	rules := schemacel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(preset *v1alpha1.Preset) error {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(preset)
		if err != nil {
			return err
		}
		if faults := validation.ValidateCustomResource(nil, object, patterns); len(faults) > 0 {
			return faults.ToAggregate()
		}
		faults, _ := rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		return faults.ToAggregate()
	}
}

// What the flags refuse, the API server refuses in a preset; and a preset that has it nonetheless makes no objects. No
// refusal has a credential.
func TestRefusedFetchesOfPresets(t *testing.T) {
	check := presetSchema(t)
	count := 0
	for _, tt := range refusedFetches() {
		values := map[string]string{}
		for part := range strings.SplitSeq(tt.text, ",") {
			key, value, _ := strings.Cut(part, "=")
			values[key] = value
		}
		if strings.HasPrefix(tt.want, "key \"") || strings.HasPrefix(tt.want, "a key is unknown") || strings.HasSuffix(tt.want, "want source=...,[branch=...]") {
			continue // of a key that is missing or has no value, or that no preset has
		}
		count++
		t.Run(tt.text, func(t *testing.T) {
			preset := fetchPreset(tt.flag, values)
			if err := check(preset); err == nil || strings.Contains(err.Error(), hidden) {
				t.Errorf("the API server: %v", err)
			}
			got, err := renderWith(&submission.Presets{All: []v1alpha1.Preset{*preset}}, "n -i a --preset a")
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), hidden) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error %v\nwant %s\n%s", err, tt.want, got)
			}
		})
	}
	if count < 30 {
		t.Errorf("only %d values were tried", count)
	}
}

// For all values: the API server accepts a preset if and only if the flag with the same values is accepted, and both make
// the same objects.
func TestPresetSchemaEqualsFlags(t *testing.T) {
	check := presetSchema(t)
	draw := func(t *rapid.T, key string, valid ...string) string {
		value := rapid.SampledFrom(append(valid, "")).Draw(t, key)
		if rapid.IntRange(0, 7).Draw(t, key+" is hostile") > 0 {
			return value
		}
		middle := rapid.SampledFrom([]string{"..", "/../", "/", "//", "-", ":", "@", "$", " ", "\n", "\x00", "ü", "A", "0", ".", "~", "#", "=", "%", "%2f", "%2"}).Draw(t, key+" has")
		at := rapid.IntRange(0, len(value)).Draw(t, key+" at")
		return value[:at] + middle + value[at:]
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		flag := rapid.SampledFrom([]string{git, s3}).Draw(t, "flag")
		values := map[string]string{
			"target": draw(t, "target", "/a", "/a/b", "/a/", "/"), "secret": draw(t, "secret", "a", "a.b-c"),
			"source": draw(t, "source", "https://git.example.org/a.git", "http://git.example.org:80/a", "ssh://git@git.example.org/~a", "ssh://git.example.org/a", "git@git.example.org:a/b"),
			"branch": draw(t, "branch", "", "main", "v1.2", "a/b"), "rev": draw(t, "rev", "", "", "0123456789abcdef0123456789abcdef01234567"),
			"bucket": draw(t, "bucket", "abc", "course-data"), "key": draw(t, "key", "", "images/2026", "AKIAIOSFODNN7EXAMPLE"),
			"url": draw(t, "url", "https://s3.example.org", "http://s3.example.org:9000/a"), "region": draw(t, "region", "", "eu-central-1"),
		}
		preset := fetchPreset(flag, values)
		refusal := check(preset)
		presets := &submission.Presets{All: []v1alpha1.Preset{*preset}}
		got, err := renderWith(presets, "n -i a --preset a")
		if (refusal == nil) != (err == nil) {
			t.Fatalf("the API server: %v\nthe command: %v", refusal, err)
		}
		if err != nil {
			return
		}
		accepted++
		settings, err := presets.Settings([]string{"a"})
		if err != nil || len(settings) != 1 {
			t.Fatal(settings, err)
		}
		// What sluice preset show prints is the flag.
		same, err := renderWith(nil, "n -i a "+settings[0].String())
		if err != nil || cmp.Diff(same, got) != "" {
			t.Fatalf("%s: %v\n%s", settings[0], err, cmp.Diff(same, got))
		}
	})
	if accepted == 0 {
		t.Error("no value was accepted")
	}
}

// The images that a preset needs are read from the cluster before the objects are made.
func TestPresetsNeedImages(t *testing.T) {
	for line, want := range map[string][]string{
		"n -i a --preset code":                               {"git-image", "s3-image"},
		"n -i a --preset code --pvc a:/images":               {"git-image"},
		"n -i a --preset code --pvc a:/images --pvc b:/code": nil,
	} {
		request, err := parseWith(readPresets(t), line)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, request.MissingImages()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", line, diff)
		}
		if _, err := submission.Objects(request); (err != nil) != (want != nil) ||
			err != nil && !strings.Contains(err.Error(), "--git-sync: this cluster names no image for it") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
