#ifndef FRESHET_MODEL_BUNDLE_PROTO_H_
#define FRESHET_MODEL_BUNDLE_PROTO_H_

#include "freshet/trainer/v1/trainer_service.pb.h"
#include "model/model_setup.h"

namespace freshet {

// Conversion between ModelBundle and its message.
inline trainer::v1::ModelBundle ToProto(const ModelBundle& bundle) {
  trainer::v1::ModelBundle proto;
  proto.set_config_json(bundle.config_json);
  proto.set_generation_config_json(bundle.generation_config_json);
  for (const TokenizerFile& file : bundle.tokenizer_files) {
    trainer::v1::ModelBundle::File& one = *proto.add_tokenizer_files();
    one.set_name(file.name);
    one.set_content(file.content);
  }
  return proto;
}
inline ModelBundle FromProto(const trainer::v1::ModelBundle& proto) {
  ModelBundle bundle;
  bundle.config_json = proto.config_json();
  bundle.generation_config_json = proto.generation_config_json();
  for (const trainer::v1::ModelBundle::File& file : proto.tokenizer_files()) {
    bundle.tokenizer_files.push_back({file.name(), file.content()});
  }
  return bundle;
}

}  // namespace freshet

#endif  // FRESHET_MODEL_BUNDLE_PROTO_H_
