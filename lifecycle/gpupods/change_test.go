// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"slices"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/api/workload"
)

// said notes changes, as text.
type said struct {
	mutex  sync.Mutex
	text   []string
	cancel func()
}

func watchChanges(w *world) *said {
	s := &said{}
	s.cancel = w.store.Changes(func(c Change) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		what := "changed"
		switch {
		case c.Before == nil:
			what = "new"
		case c.After == nil:
			what = "gone"
		}
		s.text = append(s.text, what+" "+c.Pod().Name)
	})
	return s
}

func (s *said) said() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.text)
}

func (s *said) becomes(w *world, want ...string) {
	w.Helper()
	w.until(func() bool { return cmp.Equal(want, s.said()) }, func() any { return cmp.Diff(want, s.said()) })
}

func TestChanges(t *testing.T) {
	w := begin(t, Settings{}, gpu("a")).start().synced()
	changes := watchChanges(w)
	changes.becomes(w, "new a")
	w.put(gpu("b"))
	w.put(gpu("b").on("n").phase(corev1.PodRunning))
	w.put(gpu("b").on("n").phase(corev1.PodRunning).annotated("said", "something else")) // nothing that counts
	w.put(pod("cpu"))
	w.delete("a")
	changes.becomes(w, "new a", "new b", "changed b", "gone a")

	again := gpu("b")
	again.UID = "another"
	w.put(again) // deleted and made anew, of which only the end was seen
	changes.becomes(w, "new a", "new b", "changed b", "gone a", "gone b", "new b")
	if _, ok := w.store.ByUID("uid-b"); ok {
		t.Error("the pod that was replaced is still known by its UID")
	}

	changes.cancel()
	w.put(gpu("c"))
	w.becomes("b", "c")
	if got := changes.said(); len(got) != 6 {
		t.Errorf("after it was cancelled it was told %v", got[6:])
	}
}

// A handler that comes while pods come sees each exactly once as new.
func TestNoChangeIsMissedOrToldTwice(t *testing.T) {
	s := empty()
	const pods = 2000
	var readers sync.WaitGroup
	readers.Go(func() {
		for i := range pods {
			f, ok := (&reader{names: workload.DefaultNames()}).read(gpu(string(rune('a'+i%26)) + time.Duration(i).String()).Pod)
			if !ok {
				panic("not a GPU pod")
			}
			s.put(&f)
		}
	})
	counts := make([]map[types.NamespacedName]int, 8)
	for i := range counts {
		counts[i] = map[types.NamespacedName]int{}
		readers.Go(func() {
			s.Changes(func(c Change) { counts[i][c.Pod().Key()]++ })
			for range s.InNamespace("lab") { // races with the writer
				continue
			}
		})
	}
	readers.Wait()
	for i, count := range counts {
		if len(count) != pods {
			t.Errorf("handler %d was told of %d pods, want %d", i, len(count), pods)
		}
		for key, n := range count {
			if n != 1 {
				t.Fatalf("handler %d was told of %s %d times", i, key, n)
			}
		}
	}
}

func TestSourceWakesAController(t *testing.T) {
	w := begin(t, Settings{}, gpu("a").of("Job", "train"), gpu("b").of("Job", "train"))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	defer queue.ShutDown()
	source := Source(w.store, func(c Change) []types.NamespacedName {
		return []types.NamespacedName{{Namespace: c.Pod().Namespace, Name: c.Pod().Controller.Name}}
	})
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.start()
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key, _ := queue.Get(); key.String() != "lab/train" || queue.Len() != 0 {
		t.Errorf("woke %s and %d more; want lab/train alone", key, queue.Len())
	}
}

func TestIndices(t *testing.T) {
	s := empty()
	put := func(p builder) {
		f, ok := (&reader{names: workload.DefaultNames()}).read(p.Pod)
		if !ok {
			t.Fatal("not a GPU pod")
		}
		s.put(&f)
	}
	elsewhere := gpu("z")
	elsewhere.Namespace = "other"
	put(gpu("a").of("Job", "x"))
	put(gpu("b").of("Job", "x").on("n1"))
	put(gpu("c").of("Job", "y").on("n1"))
	put(gpu("d"))
	put(elsewhere)
	put(gpu("a").of("Job", "x").on("n2"))
	s.drop(key{unique.Make("other"), "z"})
	put(gpu("c").of("Job", "x").on("n2")) // adopted and moved, as no pod is
	got := map[string][]string{
		"lab": names(s.InNamespace("lab")), "other": names(s.InNamespace("other")),
		"x": names(s.ControlledBy("uid-x")), "y": names(s.ControlledBy("uid-y")), "none": names(s.ControlledBy("")),
		"n1": names(s.OnNode("n1")), "n2": names(s.OnNode("n2")), "nowhere": names(s.OnNode("")),
	}
	want := map[string][]string{
		"lab": {"a", "b", "c", "d"}, "other": {}, "x": {"a", "b", "c"}, "y": {}, "none": {}, "n1": {"b"}, "n2": {"a", "c"}, "nowhere": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p, ok := s.Get(types.NamespacedName{Namespace: "lab", Name: "a"}); !ok || p.Node != "n2" || s.Len() != 4 {
		t.Errorf("got %+v of %d", p, s.Len())
	}
	for _, k := range s.missing(nil) {
		s.drop(k)
	}
	if left := len(s.byUID) + len(s.byNamespace.records) + len(s.byController.records) + len(s.byNode.records); left != 0 {
		t.Errorf("%d entries are left in the indices of an empty store", left)
	}
}
