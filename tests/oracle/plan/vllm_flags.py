import argparse,sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.entrypoints.common.cli_args import make_arg_parser
p=make_arg_parser(FlexibleArgumentParser())
for a in p._actions:
    names=[o for o in a.option_strings]
    if not names: print('POS',a.dest); continue
    k=type(a).__name__
    print(k,a.dest,a.nargs,','.join(names),getattr(a,'type',None) and getattr(a.type,'__name__',str(a.type)),sep='\t')
