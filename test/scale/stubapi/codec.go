// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// encoding is the encoding of a response.
type encoding struct {
	// protobuf applies only to pods; everything else is JSON, which all clients accept.
	protobuf bool
	// metadata reports whether the client requested only metadata.
	metadata bool
}

func (f encoding) contentType() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// negotiateEncoding returns the first accepted encoding that the server supports.
func negotiateEncoding(r *http.Request, kind *Kind) encoding {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, parameters, err := mime.ParseMediaType(accepted)
		as := parameters["as"]
		switch {
		case err != nil:
		case media == runtime.ContentTypeProtobuf && as == "" && kind.Resource == "pods" && kind.Group == "":
			return encoding{protobuf: true}
		case media == runtime.ContentTypeJSON && (as == "" || strings.HasPrefix(as, "PartialObjectMetadata")):
			return encoding{metadata: as != ""}
		}
	}
	return encoding{}
}

// encode encodes a single object.
func (f encoding) encode(o *object) ([]byte, error) {
	if f.protobuf {
		return protobufEnvelope("Pod", o.pod)
	}
	return o.json(f.metadata)
}

// protobufMagic is the prefix of Kubernetes' protobuf encoding.
const protobufMagic = "k8s\x00"

// protobufEnvelope adds the type to the protobuf encoding of an object of v1.
func protobufEnvelope(kind string, raw []byte) ([]byte, error) {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	encoded, err := unknown.Marshal()
	return append([]byte(protobufMagic), encoded...), err
}

func writeObject(w http.ResponseWriter, code int, o *object, as encoding) error {
	raw, err := as.encode(o)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", as.contentType())
	w.WriteHeader(code)
	_, _ = w.Write(raw) // the client may have disconnected
	return nil
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	writeJSON(w, int(status.Code), status)
}

func statusOf(err error) metav1.Status {
	known, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

// maxBodySize limits the size of a request in bytes, as in a real server.
const maxBodySize = 3 << 20

// readBody reads the object of a request; nil if the request is empty.
func readBody(r *http.Request) (map[string]any, error) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBodySize))
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	var tree map[string]any
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case media == runtime.ContentTypeProtobuf:
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("protobuf: %v", err))
		}
		if tree, err = runtime.DefaultUnstructuredConverter.ToUnstructured(decoded); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("protobuf: %v", err))
		}
		tree["apiVersion"], tree["kind"] = decoded.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		return tree, nil
	case strings.HasSuffix(media, "yaml"):
		if raw, err = yaml.YAMLToJSON(raw); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if err := utiljson.Unmarshal(raw, &tree); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("JSON: %v", err))
	}
	return tree, nil
}
