// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failing answers as a server does that fails.
func failing(w http.ResponseWriter, status *apierrors.StatusError) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.ErrStatus.Code))
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"as the test wants it"}`, status.ErrStatus.Reason, status.ErrStatus.Code)
	return true
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// modes are the two ways to have all pods.
var modes = map[string]bool{"streamed": false, "in pages": true}

func TestPodsComeAndGo(t *testing.T) {
	for mode, pages := range modes {
		t.Run(mode, func(t *testing.T) {
			w := begin(t, Settings{PageSize: 2}, gpu("a"), gpu("b"), gpu("c"), gpu("d"), gpu("e"), pod("cpu"), gpu("over").phase(corev1.PodSucceeded))
			w.server.WithoutWatchList = pages
			w.start().synced().becomes("a", "b", "c", "d", "e")
			if lists := w.times("list"); (lists > 0) != pages || (pages && lists < 3) {
				t.Errorf("the pods were listed in %d pages", lists)
			}
			w.put(gpu("f"), pod("cpu2"))
			w.becomes("a", "b", "c", "d", "e", "f")
			w.delete("a")
			w.put(gpu("b").phase(corev1.PodFailed), gpu("c").phase(corev1.PodSucceeded)) // they end, and are not deleted
			w.put(pod("d"))                                                              // asks for nothing any more
			w.becomes("e", "f")
			w.put(gpu("e").phase(corev1.PodRunning).on("n1"))
			w.until(func() bool { return len(names(w.store.OnNode("n1"))) == 1 }, func() any { return w.names() })
		})
	}
}

func TestWhatIsKnownOutlivesTheConnection(t *testing.T) {
	w := begin(t, Settings{}, gpu("a"), gpu("b")).start().synced()
	w.answering(func(out http.ResponseWriter, _ *http.Request) bool {
		return failing(out, apierrors.NewServiceUnavailable(""))
	})
	w.drop()
	w.put(gpu("c"))
	w.delete("a")
	before := len(w.names())
	w.until(func() bool { w.mutex.Lock(); defer w.mutex.Unlock(); return len(w.asked) > 6 }, func() any { return w.asked })
	if after := w.names(); len(after) != before || !w.store.HasSynced() {
		t.Errorf("while the server was away the pods became %v", after)
	}
	w.answering(nil)
	w.becomes("b", "c")
}

func TestAConnectionThatBreaksInTheMiddle(t *testing.T) {
	for mode, pages := range modes {
		t.Run(mode, func(t *testing.T) {
			w := begin(t, Settings{PageSize: 1}, gpu("a"), gpu("b"), gpu("c"))
			w.server.WithoutWatchList = pages
			var n atomic.Int32
			w.answering(func(out http.ResponseWriter, r *http.Request) bool {
				if pages && isWatch(r) || n.Add(1) > 4 {
					return false
				}
				w.server.ServeHTTP(&cutting{ResponseWriter: out, left: 150 * int(n.Load())}, r)
				return true
			})
			w.start().synced().becomes("a", "b", "c")
		})
	}
}

// cutting breaks the connection off after so many bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(raw []byte) (int, error) {
	if len(raw) > c.left {
		_, _ = c.ResponseWriter.Write(raw[:c.left])
		panic(http.ErrAbortHandler)
	}
	c.left -= len(raw)
	return c.ResponseWriter.Write(raw)
}

func (c *cutting) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func TestGoneMeansListAgain(t *testing.T) {
	for mode, pages := range modes {
		t.Run(mode, func(t *testing.T) {
			w := begin(t, Settings{}, gpu("a"), gpu("b"))
			w.server.WithoutWatchList = pages
			w.start().synced()
			changes := watchChanges(w)
			w.until(func() bool { return w.times("watch-list") > 0 }, func() any { return w.asked })
			w.answering(func(out http.ResponseWriter, r *http.Request) bool {
				return isWatch(r) && r.URL.Query().Get("sendInitialEvents") != "true" && failing(out, apierrors.NewResourceExpired(""))
			})
			w.drop()
			w.delete("a")
			w.put(gpu("c"))
			w.becomes("b", "c")
			w.answering(nil)
			w.put(gpu("d"))
			w.becomes("b", "c", "d")
			for _, change := range changes.said() {
				if strings.HasSuffix(change, " b") && change != "new b" {
					t.Errorf("of a pod that stayed as it was it was said: %s", change)
				}
			}
		})
	}
}

func TestAListThatExpiresIsBegunAnew(t *testing.T) {
	w := begin(t, Settings{PageSize: 1}, gpu("a"), gpu("b"), gpu("c"))
	w.server.WithoutWatchList = true
	var expired atomic.Bool
	w.answering(func(out http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" || !expired.CompareAndSwap(false, true) {
			return false
		}
		w.delete("a") // a list that went on would have it
		return failing(out, apierrors.NewResourceExpired(""))
	})
	w.start().synced().becomes("b", "c")
	if w.times("list in one") > 0 {
		t.Error("all pods were asked for at once")
	}
}

func TestGarbageIsNotBelieved(t *testing.T) {
	garbage := map[string]string{
		"text":                  "<html>a proxy's login page</html>",
		"nothing":               "",
		"half an object":        `{"type":"ADDED","object":{"kind":"Pod"`,
		"another kind":          `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}}`,
		"an event of no type":   `{"type":"","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","namespace":"lab"}}}`,
		"a pod without a name":  `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`,
		"a status for an event": `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		"null":                  `{"type":"ADDED","object":null}`,
	}
	for name, text := range garbage {
		t.Run(name, func(t *testing.T) {
			w := begin(t, Settings{}, gpu("a"), gpu("b"))
			var n atomic.Int32
			w.answering(func(out http.ResponseWriter, _ *http.Request) bool {
				if n.Add(1) > 4 {
					return false
				}
				out.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(out, text)
				return true
			})
			w.start().synced().becomes("a", "b")
		})
	}
}

func TestHugePods(t *testing.T) {
	huge := gpu("huge").annotated("notes", strings.Repeat("x", 1<<20)).with(func(p *corev1.Pod) {
		for i := range 2000 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Env: []corev1.EnvVar{{Name: "A", Value: "B"}}})
		}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 1<<10)}}
	})
	for mode, pages := range modes {
		t.Run(mode, func(t *testing.T) {
			w := begin(t, Settings{}, gpu("a"), huge)
			w.server.WithoutWatchList = pages
			w.start().synced().becomes("a", "huge")
			w.put(huge.phase(corev1.PodRunning))
			w.until(func() bool {
				p, ok := w.store.ByUID("uid-huge")
				return ok && p.Running && p.Milli == 1000
			}, func() any { return w.names() })
		})
	}
}
