// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// configMap returns a ConfigMap of policies; age is how many minutes ago it was created.
func configMap(name string, age int, values map[string]string) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: v1alpha1.SystemNamespace, UID: types.UID(name),
			Labels:            map[string]string{v1alpha1.PolicyDataLabel: "true"},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, -age, 0, 0, time.UTC)),
		},
		Data: values,
	}
}

func TestParseConfigMap(t *testing.T) {
	lines := func(format string, count int) string {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	tests := map[string]struct {
		data   map[string]string
		binary map[string][]byte
		want   map[string]any
		fault  string
	}{
		"strings":         {data: map[string]string{"a": "1", "b.txt": "x\n"}, want: map[string]any{"a": "1", "b.txt": "x\n"}},
		"JSON":            {data: map[string]string{"a.json": `{"b": [1, null]}`}, want: map[string]any{"a": map[string]any{"b": []any{int64(1), nil}}}},
		"YAML":            {data: map[string]string{"a.yaml": "- x\n- true\n", "b.yml": "c: 2\n"}, want: map[string]any{"a": []any{"x", true}, "b": map[string]any{"c": int64(2)}}},
		"an extension":    {data: map[string]string{".json": "no JSON"}, want: map[string]any{".json": "no JSON"}},
		"none":            {want: map[string]any{}},
		"JSON with fault": {data: map[string]string{"a.json": `{"b": `}, fault: "key a.json: invalid JSON: unexpected end, expected a value"},
		"two values":      {data: map[string]string{"a.json": `1 2`}, fault: "key a.json: invalid JSON at byte 2: expected the end, found '2'"},
		"empty YAML":      {data: map[string]string{"a.yaml": " # nothing\n"}, fault: "key a.yaml: it is empty"},
		"two documents":   {data: map[string]string{"a.yaml": "a: 1\n---\nb: 1\n"}, fault: "key a.yaml: it has more than one YAML document"},
		"an alias":        {data: map[string]string{"a.yaml": "a: &x 1\nb: *x\n"}, fault: "key a.yaml: line 1: anchors and aliases are not allowed: write the value twice"},
		"a bomb":          {data: map[string]string{"a.yaml": bomb.String()}, fault: "key a.yaml: line 1: anchors and aliases are not allowed: write the value twice"},
		"duplicate keys of YAML": {
			data: map[string]string{"a.yaml": "b: 1\nb: 2\n"}, fault: "key a.yaml: parse YAML: yaml: unmarshal errors:\n  line 2: key \"b\" already set in map",
		},
		"duplicate keys of JSON": {data: map[string]string{"a.json": `{"b": 1, "b": 2}`}, fault: `key a.json: invalid JSON before byte 16: the key "b" occurs twice`},
		"deep JSON":              {data: map[string]string{"a.json": strings.Repeat("[", 1000)}, fault: "key a.json: the JSON document nests more than 256 deep"},
		"deep YAML": {
			data:  map[string]string{"a.yaml": strings.Repeat("[", 300) + strings.Repeat("]", 300)},
			fault: "key a.yaml: the JSON document nests more than 256 deep",
		},
		"NaN":                {data: map[string]string{"a.yaml": "b: .nan\n"}, fault: "key a.yaml: parse YAML: json: unsupported value: NaN"},
		"infinite":           {data: map[string]string{"a.json": `1e999`}, fault: "key a.json: invalid JSON at byte 0: the number 1e999 is too large"},
		"not UTF-8":          {data: map[string]string{"a": "\xff"}, fault: "key a: it is not valid UTF-8"},
		"binary":             {binary: map[string][]byte{"a": {0xff}}, fault: "binaryData: policies read data only"},
		"one name for two":   {data: map[string]string{"a.json": "1", "a.yaml": "1"}, fault: `the keys a.json and a.yaml have the same name for policies, "a"`},
		"a plain name, too":  {data: map[string]string{"a.json": "1", "a": "1"}, fault: `the keys a and a.json have the same name for policies, "a"`},
		"too large":          {data: map[string]string{"a": strings.Repeat("x", MaxConfigMapBytes)}, fault: "it has 65537 bytes, of which at most 65536 are allowed"},
		"a megabyte of keys": {data: map[string]string{"a.yaml": lines("key%d: 1\n", 100_000)}, fault: "it has 1188896 bytes, of which at most 65536 are allowed"},
		"many keys":          {data: map[string]string{"a.yaml": lines("- %d\n", 3)}, want: map[string]any{"a": []any{int64(0), int64(1), int64(2)}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := configMap("a", 0, tc.data)
			object.BinaryData = tc.binary
			got, err := ParseConfigMap(&object)
			if text := fmt.Sprint(err); err != nil && text != tc.fault || err == nil && tc.fault != "" {
				t.Errorf("error %q, want %q", text, tc.fault)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && tc.fault == "" {
				t.Error(diff)
			}
		})
	}
}

// unavailable returns which ConfigMaps cannot be read, with the reason.
func unavailable(all []engine.ConfigData) map[string]string {
	found := map[string]string{}
	for _, config := range all {
		if config.Unavailable != "" {
			found[config.Name] = config.Unavailable
		}
	}
	return found
}

func TestConfigsKeepTheLastGoodVersion(t *testing.T) {
	var c Configs
	good, bad := configMap("a", 0, map[string]string{"x": "1"}), configMap("a", 0, map[string]string{"x.json": "{"})
	if all, faults := c.Update([]corev1.ConfigMap{bad}); len(faults) != 1 || len(unavailable(all)) != 1 {
		t.Errorf("a new one with a fault: %v %v", all, faults)
	}
	c.Update([]corev1.ConfigMap{good})
	all, faults := c.Update([]corev1.ConfigMap{bad})
	want := []Fault{{Name: "a", UID: "a", Message: "key x.json: invalid JSON: unexpected end, expected a key; policies read its last good version"}}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Error(diff)
	}
	if len(unavailable(all)) != 0 || all[0].Values.Object()["x"] != "1" {
		t.Errorf("the last good version is not kept: %v", all)
	}
	if all, _ := c.Update(nil); len(all) != 0 {
		t.Errorf("a deleted one is still there: %v", all)
	}
	if all, _ := c.Update([]corev1.ConfigMap{bad}); len(unavailable(all)) != 1 {
		t.Errorf("a deleted one comes back: %v", all)
	}
}

func TestConfigsLimits(t *testing.T) {
	var objects []corev1.ConfigMap
	for i := range MaxConfigMaps + 2 {
		objects = append(objects, configMap(fmt.Sprintf("m%02d", i), i, map[string]string{"x": "1"}))
	}
	var c Configs
	all, faults := c.Update(objects)
	if len(faults) != 2 || faults[0].Name != "m01" || faults[1].Name != "m00" {
		t.Errorf("faults %v, want those of the two newest", faults)
	}
	if got := unavailable(all)["m00"]; got != "at most 64 ConfigMaps are allowed, and older ones fill this number" {
		t.Errorf("reason %q", got)
	}

	objects = nil
	for i := range 17 {
		objects = append(objects, configMap(fmt.Sprintf("m%02d", i), 100-i, map[string]string{"x": strings.Repeat("x", MaxConfigMapBytes-1)}))
	}
	c = Configs{}
	if _, faults := c.Update(objects); len(faults) != 1 || faults[0].Name != "m16" {
		t.Errorf("faults %v, want that of the newest: 17 times 64 KiB are more than 1 MiB", faults)
	}
}

func TestConfigsIgnoreOtherConfigMaps(t *testing.T) {
	unlabeled, elsewhere := configMap("a", 0, nil), configMap("b", 0, nil)
	unlabeled.Labels = nil
	elsewhere.Namespace = "default"
	var c Configs
	if all, faults := c.Update([]corev1.ConfigMap{unlabeled, elsewhere}); len(all)+len(faults) != 0 {
		t.Errorf("%v %v, want nothing", all, faults)
	}
}

// Whatever a ConfigMap contains, parsing it ends without a panic, and what is accepted can be encoded.
func FuzzParseConfigMap(f *testing.F) {
	for _, seed := range []string{"a: 1", "- x\n- [1, {b: .nan}]", `{"a": 1}`, "a: &x 1\nb: *x", "<<: {a: 1}", "? [a]\n: 1", "%YAML 1.1\n---\na", "!!binary aGk=", "\xff", "0x1F", "1e400"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, extension := range []string{".yaml", ".json", ""} {
			object := configMap("a", 0, map[string]string{"key" + extension: text})
			values, err := ParseConfigMap(&object)
			if err != nil {
				continue
			}
			if _, err := engine.NewConfigData("a", values); err != nil {
				t.Errorf("%q%s: %v", text, extension, err)
			}
		}
	})
}
