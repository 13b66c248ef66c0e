#include "services/reward/service/reward_process.h"

int main(int argc, char** argv) { return freshet::RunRewardProcess(argc, argv); }
