{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
The object's metadata, as on every Kubernetes object.
{{- else -}}
{{ markdownRenderFieldDoc .Doc }}
{{- end -}}
{{- end -}}
