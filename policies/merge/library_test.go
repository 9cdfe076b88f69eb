// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// This test shows why Apply is not structured-merge-diff's Merge. A failing case means
// that the library now supports it and may serve.
func TestStructuredMergeDiffCannotReplaceApply(t *testing.T) {
	pod, err := applyconfigurations.NewTypeConverter(scheme.Scheme).
		ObjectToTyped(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	if err != nil {
		t.Fatal(err)
	}
	parser := typed.ParseableType{Schema: pod.Schema(), TypeRef: pod.TypeRef()}
	parse := func(spec string, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
		var value map[string]any
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"spec":%s}`, spec)), &value); err != nil {
			t.Fatal(err)
		}
		return parser.FromUnstructured(value, options...)
	}
	container := func(fields string) string { return `{"containers":[{` + fields + `,"name":"main"}]}` }
	tests := map[string]struct {
		object, change, want string
		options              []typed.ValidationOptions
	}{
		"a new container becomes the first one": {
			object: `{"containers":[{"name":"main"}]}`, change: `{"containers":[{"name":"added"},{"name":"main"}]}`,
			want: `{"containers":[{"name":"added"},{"name":"main"}]}`,
		},
		"a variable that occurs twice is an error": {
			object: container(`"env":[{"name":"X","value":"1"},{"name":"X","value":"2"}]`), change: container(`"image":"a"`),
			want: `.spec.containers[name="main"].env: duplicate entries for key [name="X"]`,
		},
		"a variable that occurs twice stays": {
			object: container(`"env":[{"name":"X","value":"1"},{"name":"X","value":"2"}]`), change: container(`"env":[{"name":"Y"}]`),
			want:    container(`"env":[{"name":"X","value":"1"},{"name":"X","value":"2"},{"name":"Y"}]`),
			options: []typed.ValidationOptions{typed.AllowDuplicates},
		},
		"both members of a union are set": {
			object: container(`"env":[{"name":"X","value":"1"}]`), change: container(`"env":[{"name":"X","valueFrom":{}}]`),
			want: container(`"env":[{"name":"X","value":"1","valueFrom":{}}]`),
		},
		"null is a value and removes nothing": {
			object: `{"schedulerName":"a"}`, change: `{"schedulerName":null}`, want: `{"schedulerName":null}`,
		},
		"a field newer than the schema is an error": {
			object: `{"newer":1}`, change: `{}`, want: `.spec.newer: field not declared in schema`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := parse(tt.object, tt.options...)
			if err != nil {
				if err.Error() != tt.want {
					t.Errorf("%v, want %s", err, tt.want)
				}
				return
			}
			change, err := parse(tt.change)
			if err != nil {
				t.Fatal(err)
			}
			merged, err := object.Merge(change)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(merged.AsValue().Unstructured())
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`{"spec":%s}`, tt.want); string(got) != want {
				t.Errorf("it returns %s, want %s", got, want)
			}
		})
	}
	t.Run("500m of CPU differs from 0.5", func(t *testing.T) {
		half, err := parse(container(`"resources":{"limits":{"cpu":"500m"}}`))
		if err != nil {
			t.Fatal(err)
		}
		same, err := parse(container(`"resources":{"limits":{"cpu":"0.5"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if difference, err := half.Compare(same); err != nil || difference.IsSame() {
			t.Errorf("it returns %v, %v", difference, err)
		}
	})
}
